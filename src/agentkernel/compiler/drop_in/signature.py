"""The signature of a drop-in's forward, and the lines that take its nested arguments apart."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkernel.compiler.drop_in.envelope import differs, refusal
from agentkernel.compiler.emit import Names, identifier
from agentkernel.domain.structure import DataStructure
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.problem.structures import PLAIN

LONGEST = 88


@dataclass(frozen=True)
class Signature:
    """`parameters` as they are written behind `self`, `inputs` the variable of each input from left
    to right, and `lines` that fill those and refuse what is nested otherwise or has no default."""

    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Parameter:
    """A parameter of the original's forward; `default` is its source, None for none or no plain
    one."""

    name: str
    default: str | None
    optional: bool


def signature_of(loaded: LoadedProblem, names: Names, count: int, constant: str) -> Signature:
    """The original's signature: its names, its order, its plain defaults.

    `count` inputs go in; `constant` is the name of the text that ends every refusal. A parameter
    that the problem leaves out stays, and any value but its default is refused.
    """
    places, named = _parameters(loaded)
    arguments = loaded.problem.arguments
    if arguments is None:
        given, keywords = [DataStructure("tensor")] * count, {}
    else:
        by_position, by_name = arguments.items
        given = list(by_position.items)
        keys = [key[1:-1] for key in by_name.keys]
        keywords = dict(zip(keys, by_name.items, strict=True))
    writer = _Writer(names, constant)
    positional: list[tuple[str, str | None]] = []
    for index, item in enumerate(given):
        known = places[index] if index < len(places) else None
        wanted = known.name if known is not None else f"input_{index}"
        name = writer.take(wanted, item)
        plain = known is not None and item.kind == "tensor"
        positional.append((name, known.default if plain and known is not None else None))
    left = [item for item in places[len(given) :] if item.name not in keywords]
    kept = [item for item in left if item.default is not None]
    positional += [(writer.leave(item), item.default) for item in kept[: _leading(left)]]
    by_name_only = {item.name: item for item in named}
    texts: list[str] = []
    for key, item in keywords.items():
        default = by_name_only[key].default if key in by_name_only else None
        name = writer.take_named(key, item)
        texts.append(_text(name, default if item.kind == "tensor" else None))
    rest = [item for item in named if item.name not in keywords and item.default is not None]
    texts += [_text(writer.leave(item), item.default) for item in rest]
    star = ["*"] if texts else []
    return Signature(
        (*_in_order(positional), *star, *texts), tuple(writer.inputs), tuple(writer.all_lines())
    )


def _leading(parameters: Sequence[_Parameter]) -> int:
    """How many of them have a plain default before the first that has none."""
    return next((at for at, item in enumerate(parameters) if item.default is None), len(parameters))


def _parameters(loaded: LoadedProblem) -> tuple[list[_Parameter], list[_Parameter]]:
    """Of the original's forward: those with a position, and those given by name alone."""
    found = list(inspect.signature(loaded.module_class.forward).parameters.values())[1:]
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        [_parameter(item) for item in found if item.kind in places],
        [_parameter(item) for item in found if item.kind is inspect.Parameter.KEYWORD_ONLY],
    )


def _parameter(item: inspect.Parameter) -> _Parameter:
    plain = type(item.default) in PLAIN
    return _Parameter(
        item.name, repr(item.default) if plain else None, item.default is not item.empty
    )


def _text(name: str, default: str | None) -> str:
    return name if default is None else f"{name}={default}"


def _in_order(positional: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """No default stands before a parameter without one."""
    last = max((at for at, (_, default) in enumerate(positional) if default is None), default=-1)
    for at, (name, default) in enumerate(positional):
        yield _text(name, default if at > last else None)


class _Writer:
    """Names the parameters, and writes what takes them apart."""

    def __init__(self, names: Names, constant: str) -> None:
        self._names = names
        self._constant = constant
        self.inputs: list[str] = []
        self._lines: list[str] = []
        self._left: list[tuple[str, str]] = []

    def take(self, wanted: str, structure: DataStructure) -> str:
        """The name of a parameter of this structure, whose inputs are noted."""
        name = self._names.unique(identifier(wanted))
        self._fill(name, wanted, structure)
        return name

    def take_named(self, key: str, structure: DataStructure) -> str:
        """The same for one that is given by name, which must be that name."""
        name = self._names.unique(identifier(key))
        if name != key:
            self._lines.append(f"{name} = {key}")
        self._fill(name, key, structure)
        return key

    def leave(self, parameter: _Parameter) -> str:
        """The name of a parameter that must have its default."""
        name = self._names.unique(identifier(parameter.name))
        self._left.append((name, str(parameter.default)))
        return name

    def all_lines(self) -> list[str]:
        """Those that refuse what has no default, then those that take arguments apart."""
        unmet = [differs(name, ast.literal_eval(default)) for name, default in self._left]
        told = ", ".join(f"{name} is {{{name}}}" for name, _ in self._left)
        return [*refusal(unmet, told, self._constant), *self._lines]

    def _fill(self, name: str, path: str, structure: DataStructure) -> None:
        if structure.kind == "tensor":
            self.inputs.append(name)
            return
        if structure.kind == "dict":
            parts = [_double_quoted(key) for key in structure.keys]
            test, told = f"list({name}) != [{', '.join(parts)}]", f"keys {{list({name})}}"
        else:
            parts = [str(index) for index in range(len(structure.items))]
            test, told = f"len({name}) != {len(parts)}", f"{{len({name})}} items"
        self._lines += refusal([test], f"{name} has {told}", self._constant)
        inner = ["_".join([path, *re.findall(r"\w+", part)]) for part in parts]
        variables = [self._names.unique(identifier(item)) for item in inner]
        self._lines += _unpacked(name, variables, parts, structure.kind == "dict")
        for variable, below, item in zip(variables, inner, structure.items, strict=True):
            self._fill(variable, below, item)


def _double_quoted(key: str) -> str:
    """A key's literal as formatters write it."""
    plain = key[1:-1]
    quoted = key[0] == "'" and key[-1] == "'" and '"' not in plain and "\\" not in plain
    return f'"{plain}"' if quoted else key


def _unpacked(name: str, variables: Sequence[str], parts: Sequence[str], keyed: bool) -> list[str]:
    """Assignments of what `name` holds, in one line where they fit."""
    if not variables:
        return []
    values = [f"{name}[{part}]" for part in parts]
    targets = f"{', '.join(variables)}{',' if len(variables) == 1 and not keyed else ''}"
    line = f"{targets} = {', '.join(values) if keyed else name}"
    if len(line) <= LONGEST:
        return [line]
    return [f"{variable} = {value}" for variable, value in zip(variables, values, strict=True)]


__all__ = ["Signature", "signature_of"]
