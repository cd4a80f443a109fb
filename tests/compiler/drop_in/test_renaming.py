"""Modules in one text compute what they compute apart, whatever their names hide."""

from __future__ import annotations

import sys
import types

from hypothesis import given
from hypothesis import strategies as st

from agentkernel.compiler.drop_in.own_modules import joint_text
from agentkernel.compiler.drop_in.package_names import read_module

TOP = "agentkernel_try_heap"
NAMES = ("f", "g", "h", "max", "a_f")


@st.composite
def packages(draw: st.DrawFn) -> dict[str, str]:
    """Three modules of functions that call each other, by few names: clashes are the rule."""
    texts: dict[str, str] = {}
    public: dict[str, list[str]] = {}
    for module in "abc":
        lines: list[str] = []
        calls: dict[str, str] = {}
        functions: list[str] = []
        for number, name in enumerate(draw(st.permutations(NAMES))[:4]):
            earlier = [item for item in public if public[item]]
            way = draw(st.sampled_from(["def", "from", "module", "dotted", "inside"]))
            if way == "def" or not earlier:
                lines += _function(draw, f"{module}{number}", name, calls)
                calls[name] = f"{name}()"
                functions.append(name)
                continue
            other = draw(st.sampled_from(earlier))
            target = draw(st.sampled_from(public[other]))
            if way == "from":
                lines.append(f"from .{other} import {target} as {name}")
                calls[name] = f"{name}()"
                functions.append(name)
            elif way == "module":
                lines.append(f"from . import {other} as {name}")
                calls[name] = f"{name}.{target}()"
            elif way == "dotted":
                lines.append(f"import {TOP}.{other}")
                calls[TOP] = f"{TOP}.{other}.{target}()"
            else:
                local = draw(st.sampled_from(NAMES))
                lines += [f"def {name}():", f"    from .{other} import {target} as {local}"]
                lines.append(f"    return [{module}{number!r}, {local}()]".replace(module, "", 1))
                calls[name] = f"{name}()"
                functions.append(name)
        results = ", ".join(calls[name] for name in sorted(calls))
        texts[module] = "\n".join([*lines, f"results = [{results}]", ""])
        public[module] = functions
    return texts


def _function(draw: st.DrawFn, mark: str, name: str, calls: dict[str, str]) -> list[str]:
    """A function whose parameter, variables and default are named as they come."""
    given_name, item = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    seen = [call for key, call in calls.items() if key != given_name]
    default = draw(st.sampled_from([*calls.values(), "1"]))
    inner = [call for key, call in calls.items() if key not in (given_name, item)]
    each = f"[({item}, {', '.join(inner)}) for {item} in [{given_name}, 2]]"
    return [
        f"def {name}({given_name}={default}):",
        f"    return [{mark!r}, {given_name}, {each}, {', '.join(seen)}]",
    ]


def apart(texts: dict[str, str]) -> object:
    """The results of the last module, imported by Python."""
    top = types.ModuleType(TOP)
    top.__path__ = []
    sys.modules[TOP] = top
    try:
        for name, text in texts.items():
            module = types.ModuleType(f"{TOP}.{name}")
            module.__package__ = TOP
            sys.modules[module.__name__] = module
            exec(text, vars(module))
            setattr(top, name, module)
        return vars(module)["results"]
    finally:
        for key in [key for key in sys.modules if key.split(".")[0] == TOP]:
            del sys.modules[key]


@given(packages())
def test_together_as_apart(texts: dict[str, str]) -> None:
    modules = {f"{TOP}.{name}": read_module(f"{TOP}.{name}", False, texts[name]) for name in texts}
    modules[TOP] = read_module(TOP, True, "")
    made = joint_text(modules, f"{TOP}.c", "results")
    scope: dict[str, object] = {}
    exec(made.source, scope)
    assert TOP not in made.source
    assert scope[made.name_of(f"{TOP}.c", "results")] == apart(texts)
