"""The static policy names the rule and the line, and leaves honest drop-ins alone."""

import builtins
from pathlib import Path

import pytest

from agentkernel.tools.judge.policy.check import check_policy

REFUSED = {
    "import os": ("import torch\n", "import os\nimport torch\n", "import"),
    "from torch.utils": ("import math\n", "from torch.utils import cpp_extension\n", "import"),
    "ctypes": ("import math\n", "import ctypes\n", "import"),
    "relative": ("import math\n", "from . import reference\n", "import"),
    "star": ("import math\n", "from math import *\n", "import"),
    "exec": ("return out", "exec('1')\n        return out", "banned-name"),
    "open": ("return out", "open('/etc/passwd')\n        return out", "banned-name"),
    "getattr": ("return out", "getattr(x, 'add')(y)\n        return out", "banned-name"),
    "environment": ("return out", "torch.os.environ\n        return out", "banned-attribute"),
    "a view": ("return out", "x._base\n        return out", "banned-attribute"),
    "shared memory": ("return out", "x.is_shared()\n        return out", "banned-attribute"),
    "the array behind": ("return out", "x.handle\n        return out", "banned-attribute"),
    "the device": ("return out", "return out if x.is_cuda else x", "banned-attribute"),
    "its storage": ("return out", "x.storage()\n        return out", "banned-attribute"),
    "a leaf": ("return out", "return out if x.is_leaf else x", "banned-attribute"),
    "its graph": ("return out", "return out if x.grad_fn else x", "banned-attribute"),
    "its gradient": ("return out", "return out if x.grad is None else x", "banned-attribute"),
    "a count of writes": ("return out", "return out if x._version == 0 else x", "banned-attribute"),
    "whether it counts": ("return out", "return x if x._version else out", "banned-attribute"),
    "its kind": ("return out", "return out if x.device.type == 'cpu' else x", "banned-attribute"),
    "its number": ("return out", "return x if x.get_device() >= 0 else out", "banned-attribute"),
    "a processor's": ("return out", "return out if x.is_cpu else x", "banned-attribute"),
    "its device's number": ("return out", "return x if x.device.index else out",
        "banned-attribute"),
    "a device by its text": ("return out", "return out if str(x.device) == 'cpu' else x",
        "banned-attribute"),
    "a device by comparison": ("return out", "return out if x.device == 'cpu' else x",
        "banned-attribute"),
    "a device by name": ("return out", "d = x.device\n        return out if d in ('cpu',) else x",
        "banned-attribute"),
    "a table of devices": ("return out", "return {'cpu': out}.get(x.device)", "banned-attribute"),
    "a match of devices": ("return out",
        "match x.device.type:\n            case _:\n                return x\n        return out",
        "banned-attribute"),
    "torch's build": ("return out", "return x if torch.version.cuda else out", "banned-attribute"),
    "whether there is CUDA": ("return out", "return x if torch.cuda.is_available() else out",
        "banned-attribute"),
    "an attribute of a kernel": ("return out", "return x if add_kernel.params else out",
        "kernel-reflection"),
    "a question of a kernel": ("return out",
        "k = add_kernel\n        return x if hasattr(k, 'params') else out", "kernel-reflection"),
    "the type of a kernel": ("return out", "type(add_kernel).__name__\n        return out",
        "kernel-reflection"),
    "its own name": ("return out", "return out if __name__ == 'm' else x", "banned-name"),
    "a pattern": (
        "return out",
        "match x:\n            case torch.Tensor(_base=None):\n                return x\n"
        "        return out",
        "banned-attribute",
    ),
    "dunder": ("return out", "out.__class__\n        return out", "dunder"),
    "builtins": ("return out", "__builtins__\n        return out", "dunder"),
    "globals": ("return out", "global cache\n        return out", "global-state"),
    "patching": ("return out", "torch.allclose = None\n        return out", "patching"),
    "torch.ops": ("return out", "return torch.ops.aten.add(x, y)", "torch-namespace"),
    "torch.compile": ("return out", "return torch.compile(x)", "torch-namespace"),
    "torch compute": ("return out", "return torch.add(x, y, alpha=2)", "torch-compute"),
    "functional": ("return out", "return nn.functional.relu(x)", "torch-compute"),
    "tensor method": ("return out", "return x.add(y)", "torch-compute"),
    "matmul operator": ("return out", "return x @ y", "torch-compute"),
    "fallback": ("        return out",
        "        try:\n            return out\n        except ValueError:\n            return x",
        "try-in-model"),
    "no kernel": ("@triton.jit\n", "", "no-kernel"),
    "no launch": ("add_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)", "pass",
        "no-launch"),
    "no model": ("class ModelNew", "class Other", "no-model"),
    "syntax": ("class ModelNew", "class class", "syntax"),
    "submodule": ("return out", "return self.layer(x)", "module-call"),
}  # fmt: skip


RESOLVED = {
    "a default": ("def tools(getattr=getattr):\n    return getattr", "banned-name"),
    "a default of a lambda": ("ask = lambda input=input: input", "banned-name"),
    "an annotation": ("def read(path: open):\n    return path", "banned-name"),
    "a decorator": ("@eval\ndef read():\n    pass", "banned-name"),
    "a class body": ("class Tools:\n    eval = eval", "banned-name"),
    "the file itself": ("exec = exec", "banned-name"),
    "what a comprehension walks": ("found = [open for open in (open,)]", "banned-name"),
    "a builtin that nobody listed": ("aiter", "banned-name"),
    "a module of Python's": ("from torch import builtins", "import"),
    "by attribute": ("found = torch.nn.functional.warnings", "foreign-module"),
    "under another name": ("t = torch\nfound = t.builtins", "foreign-module"),
    "operators under another name": ("from torch import ops as lib", "import"),
    "a function by its own name": ("from torch import load as read\nread", "torch-namespace"),
    "a module in a list": ("spaces = [torch]", "module-value"),
    "a field of a format string": ('said = "{0.is_cuda}".format(1)', "banned-attribute"),
    "an item of a format string": ('said = "{:{0[1]}}".format(1, 2)', "banned-attribute"),
    "a format string by name": ('text = "{0.x}"\nsaid = text.format(1)', "banned-attribute"),
    "a format that is computed": ('said = ("{0" + ".x}").format(1)', "banned-attribute"),
    "a format as a function": ('said = list(map(str.format, "a"))', "banned-attribute"),
    "the text of a method": ("said = repr(add_kernel.run)", "text-of-code"),
    "the text of a class": ("said = f'{torch.Tensor}'", "text-of-code"),
    "the text of a function by name": ("relu = torch.relu\nsaid = '%s' % relu", "text-of-code"),
    "a question of torch's state": (
        "probe = torch.are_deterministic_algorithms_enabled",
        "banned-attribute",
    ),
    "a question by its own name": ("from torch import initial_seed as s", "banned-attribute"),
    "a module in an expression": ("found = (t := torch)", "module-value"),
}
HARMLESS = (
    "def read(getattr, open):\n    return getattr(open)",
    "ask = lambda input: input",
    "libdevice = tl.extra.cuda.libdevice",
    "known = hasattr(tl, 'x')",
    "from torch.nn import functional, Module\nrelu = functional.relu",
    "found = [input for input in range(3)]",
    'said = "{:>{width}} {0!r}".format(1, width=3)',
    "text = '{a}'\ntext += ', {b}'\nsaid = text.format(a=1, b=2)",
    "assert not torch.are_deterministic_algorithms_enabled()",
    "def refuse(x):\n    raise TypeError('{0.dtype} {1}'.format(x, torch.relu))",
    "said = f'{torch.float32} {type(1).__name__} {torch.relu.__name__}'",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_name_that_the_file_binds_is_its_own(sources, text):
    assert check_policy(f"{sources.ADD}\n\n{text}\n", "triton") is None


@pytest.mark.parametrize("name", RESOLVED)
def test_names_are_resolved_as_python_does(sources, name):
    text, rule = RESOLVED[name]
    source = f"{sources.ADD}\n\n{text}\n"
    found = check_policy(source, "triton")
    assert found.rule == rule
    assert source.splitlines()[found.line - 1] in text


def test_what_another_module_left_among_the_builtins_changes_no_rule(sources, monkeypatch):
    monkeypatch.setitem(vars(builtins), "__builtins__", builtins)
    source = sources.ADD.replace("return out", "__builtins__\n        return out", 1)
    found = check_policy(source, "triton")
    assert found.rule == "dunder"


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_rule_and_line(sources, name):
    old, new, rule = REFUSED[name]
    assert old in sources.ADD
    source = sources.ADD.replace(old, new, 1)
    found = check_policy(source, "triton")
    assert found.rule == rule
    assert found.line >= 1


@pytest.mark.parametrize("name", ["NORM", "ADD", "SOFTMAX", "GEMM"])
@pytest.mark.parametrize("policy", ["triton", "mixed", "any"])
def test_honest_drop_ins_pass(sources, name, policy):
    assert check_policy(getattr(sources, name).replace("DTYPE", "float32"), policy) is None


LIBRARY = """
import torch
import torch.nn.functional as F
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return BODY
"""


@pytest.mark.parametrize(
    ("body", "mixed"),
    [
        ("F.linear(x, self.linear.weight)", True),
        ("torch.mm(x, x)", True),
        ("x.matmul(x)", True),
        ("self.linear(x)", True),
        ("F.conv2d(x, x)", True),
        ("F.gelu(x)", False),
        ("F.max_pool2d(x, 2)", False),
        ("self.norm(x)", False),
        ("torch.softmax(x, 0)", False),
    ],
)
def test_mixed_lets_library_products_through_and_nothing_else(body, mixed):
    source = LIBRARY.replace("BODY", body)
    assert (check_policy(source, "mixed") is None) == mixed
    assert check_policy(source, "triton") is not None
    assert check_policy(source, "any") is None


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ("torch.return_types.max((x, x))", True),
        ("torch.return_types.torch.exp(x)", False),
        ("torch.return_types.exp(x)", False),
    ],
)
def test_a_named_result_may_be_made_and_nothing_else_beside_it(sources, body, allowed):
    source = sources.ADD.replace("return out", f"return {body}", 1)
    assert (check_policy(source, "triton") is None) == allowed


TUNED = """@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.jit
"""
ORIGINAL = (
    "class Model(nn.Module):\n    def forward(self, x, y):\n        return torch.relu(x) + y\n\n\n"
)
ODD = {
    "views by functions": (
        "return out",
        "return torch.reshape(torch.transpose(out, 0, 0), x.shape)",
    ),
    "an autotuner": ("@triton.jit\n", TUNED),
    "the original beside it": (
        "class ModelNew(nn.Module)",
        ORIGINAL + "def get_inputs():\n    return [torch.randn(8)]\n\n\nclass ModelNew(nn.Module)",
    ),
    "the original as its base": (
        "class ModelNew(nn.Module)",
        ORIGINAL + "class ModelNew(Model)",
    ),
    "a parameter called input": (
        "def forward(self, x, y):\n",
        "def forward(self, input, y):\n        x = input\n",
    ),
    "a method of its base": (
        "class ModelNew(nn.Module):\n",
        "class Launching(nn.Module):\n    def blocks(self, n):\n"
        "        return triton.cdiv(n, 128)\n\n\nclass ModelNew(Launching):\n",
    ),
    "libdevice": ("import math", "from triton.language.extra.cuda import libdevice"),
    "a count that it kept": (
        "        n = x.numel()",
        "        n = x.numel()\n        key = (n, x._version)\n        self.count = x._version\n"
        "        n = n if x._version != self.count else n",
    ),
    "a gradient's function": ("import math", "KEPT = torch.autograd.grad"),
    "a version": ("        n = x.numel()", "        n = x.numel() if torch.__version__ else 0"),
    "its own parameters": (
        "        n = x.numel()",
        "        n = x.numel() + len(list(self.parameters()))",
    ),
    "a list of names": ("import math", '__all__ = ["ModelNew"]'),
    "a kernel made by a call": ("@triton.jit\ndef add_kernel(", "def plain("),
    "constants in a dictionary": (
        "class ModelNew",
        'BLOCKS = {"float32": 128}\nHALF = tl.constexpr(0.5)\n\n\nclass ModelNew',
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_honest_ways_pass(sources, name):
    old, new = ODD[name]
    assert old in sources.ADD
    source = sources.ADD.replace(old, new, 1)
    if name == "a kernel made by a call":
        source = source.replace("\n\nclass", "\n\nadd_kernel = triton.jit(plain)\n\n\nclass")
    if name == "a method of its base":
        source = source.replace("triton.cdiv(n, 128),)", "self.blocks(n),)")
    assert check_policy(source, "triton") is None


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("return out", "return helper(x)", "torch-compute"),
        ("return out", "return Model().forward(x, y)", "torch-compute"),
        ("return out", "return super().forward(x, y)", "torch-compute"),
        ("return out", "return input(out)", "banned-name"),
    ],
)
def test_what_the_model_reaches_is_read(sources, old, new, rule):
    reached = f"def helper(x):\n    return torch.relu(x)\n\n\n{ORIGINAL}class ModelNew(Model)"
    source = sources.ADD.replace("class ModelNew(nn.Module)", reached)
    assert check_policy(source, "triton") is None
    found = check_policy(source.replace(old, new, 1), "triton")
    assert found.rule == rule


def test_a_kernel_may_hold_what_the_model_may_not_call(sources):
    source = sources.ADD.replace("x + 2 * y", "tl.sigmoid(x).sum() + 2 * y")
    assert check_policy(source, "triton") is None


TWICE = """    pass
    \"""
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pass
    # \"""
"""
UNALIKE = {
    "a coding line": ("", "# coding: unicode_escape\n", "syntax"),
    "a coding line below": ("", "#\n# vim: set fileencoding=latin-1\n", "syntax"),
    "a separator of lines": ("import math\n", "import math\nNOTE = '\u2028'\n", "syntax"),
    "a form feed": ("import math\n", "import math\n\f\n", "syntax"),
    "a lone carriage return": ("import math\n", "import math\n# \r\n# \rpass\n", "syntax"),
    "a zero": ("import math\n", "import math\n# \0\n", "syntax"),
    "a definition in a string": ("\n\nclass", f"\n{TWICE}\n\nclass", "kernel-text"),
    "a second kernel": ("\n\nclass",
        "\n\n@triton.jit\ndef add_kernel(x_ptr):\n    pass\n\n\nclass", "defined-twice"),
    "one under a condition": (
        "\n\nclass",
        "\n\nif math.pi > 3:\n    @triton.jit\n    def add_kernel(x_ptr):\n        pass\n\n\nclass",
        "defined-twice",
    ),
    "a second model": ("class ModelNew", "class ModelNew:\n    pass\n\n\nclass ModelNew",
        "defined"),
    "another value": ("\n\nclass", "\n\nadd_kernel = math.pi\n\n\nclass", "kernel-text"),
    "another import": ("\n\nclass", "\n\nfrom math import pi as ModelNew\n\n\nclass",
        "kernel-text"),
    "a hidden wrapper": ("\n\nclass", "\n\nmade = map(triton.jit, ())\n\n\nclass", "kernel-text"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNALIKE)
def test_a_file_with_two_readings_is_refused(sources, name):
    old, new, rule = UNALIKE[name]
    assert old in sources.ADD
    found = check_policy(sources.ADD.replace(old, new, 1), "triton")
    assert found.rule.startswith(rule)


@pytest.mark.parametrize(
    "text",
    [
        "class Box:\n    @property\n    def a(self):\n        return 1\n\n"
        "    @a.setter\n    def a(self, value):\n        pass",
        "add_kernel = triton.heuristics({})(add_kernel)",
        "class One:\n    def run(self):\n        pass\n\n\nclass Two:\n"
        "    def run(self):\n        pass",
    ],
    ids=["a property", "a wrapped kernel", "two classes"],
)
def test_one_name_in_two_places_may_mean_one_thing(sources, text):
    assert check_policy(f"{sources.ADD}\n\n{text}\n", "triton") is None


@pytest.mark.parametrize("head", ["\ufeff", "# -*- coding: utf-8 -*-\n", "# coding=UTF_8\n"])
def test_a_file_may_say_that_it_is_utf_8(sources, head):
    assert check_policy(head + sources.ADD, "triton") is None
    assert check_policy(head + sources.ADD.replace("\n", "\r\n"), "triton") is None


REFLECTION = {
    "hints that are evaluated": ("import typing\ntyping.get_type_hints(dict)", "banned-attribute"),
    "the same by its name": ("from typing import get_type_hints", "banned-attribute"),
    "a reference that is evaluated": ("from typing import ForwardRef", "banned-attribute"),
    "what of typing nobody listed": ("import typing\ntyping.get_origin(dict)", "banned-attribute"),
    "a class from names": ("from dataclasses import make_dataclass", "banned-attribute"),
    "a class from a dictionary": ("Made = type('Made', (), {})", "banned-name"),
    "type under another name": ("kind = type", "banned-name"),
    "the type of a type": ("kind = type(type(1))", "banned-name"),
    "a metaclass": ("class Meta(type):\n    pass", "banned-name"),
    "a pattern by position": (
        "class Look:\n    pass\n\n\nmatch 1:\n    case Look(storage):\n        pass",
        "class-pattern",
    ),
    "a pattern under a plain name": (
        "str = ModelNew\nmatch 1:\n    case str(storage):\n        pass",
        "class-pattern",
    ),
    "a coroutine's frame": ("async def f():\n    pass\n\n\nf().cr_frame", "banned-attribute"),
    "a generator's frame": ("async def f():\n    yield\n\n\nf().ag_frame", "banned-attribute"),
    "a frame's names": ("def f(x):\n    return x.f_locals", "banned-attribute"),
    "a name that nothing binds": ("found = GridExecutor", "unbound-name"),
    "a name of another function": (
        "def f(GridExecutor):\n    pass\n\n\nfound = GridExecutor",
        "unb",
    ),
    "a class from a dictionary in a question": (
        "isinstance(type('Made', (), {}), object)",
        "banned-name",
    ),
    "a name of the interpreter's in a question": (
        "def told():\n    return isinstance(interpreter_semantic, object)",
        "unb",
    ),
    "an annotation that calls": ("def f(x: print(1)):\n    pass", "annotation"),
    "an annotation of its own class": (
        "class Look:\n    pass\n\n\ndef f(x: Look[1]):\n    pass",
        "annotation",
    ),
    "a name of the interpreter's": (
        "interpreter_semantic = 1\nfound = interpreter_semantic",
        "unb",
    ),
}


@pytest.mark.parametrize("name", REFLECTION)
def test_no_string_becomes_an_attribute_or_code(sources, name):
    text, rule = REFLECTION[name]
    found = check_policy(f"{sources.ADD}\n\n{text}\n", "triton")
    assert found.rule.startswith(rule)


@pytest.mark.parametrize(
    "text",
    [
        "from typing import Any, NamedTuple, cast\nkinds: type = type(1)",
        "assert isinstance(ModelNew, type)",
        "match 1:\n    case int(value) | float(value):\n        pass",
        "def later() -> NeverImported:\n    return below\n\n\nbelow = 1",
        "found = [one for one in range(3) if one]",
        "found = [add_kernel for add_kernel in (1, 2)]",
        "def f(x, type):\n    return type + 1",
        "from typing import NamedTuple\n\n\nclass Entry(NamedTuple):\n    type: int",
        "from typing import FrozenSet\n\n\ndef f(x: 'FrozenSet[int] | None' = None):\n    pass",
        "def f(x: torch.Tensor | None, y: dict[str, int]) -> tuple[int, ...]:\n    pass",
    ],
)
def test_plain_questions_of_types_pass(sources, text):
    assert check_policy(f"{sources.ADD}\n\n{text}\n", "triton") is None


@pytest.mark.parametrize("word", ["hasattr", "isinstance", "type", "callable"])
def test_a_kernel_asks_for_no_attributes_and_types(sources, word):
    source = sources.ADD.replace("tl.store(", f"{word}(x, n)\n    tl.store(", 1)
    found = check_policy(source, "any")
    assert found.rule in ("kernel-reflection", "banned-name")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.store(", "id = tl.program_id(0)\n    hash = id\n    tl.store("),
        ("n, BLOCK", "hash, BLOCK"),
        ("n, BLOCK", "n: str, BLOCK"),
    ],
    ids=["locals", "a parameter", "an annotation"],
)
def test_a_kernels_own_names_are_its_own(sources, old, new):
    source = sources.ADD.replace(old, new, 1)
    source = source.replace("offs < n", "offs < hash", 1) if "hash, " in new else source
    assert source != sources.ADD
    found = check_policy(source, "triton")
    assert found is None or found.rule != "kernel-reflection"


def test_a_kernel_in_a_function_may_have_a_docstring(sources):
    made = """

def make():
    @triton.jit
    def inner_kernel(x_ptr):
        \"""Copies.

        In tiles.
        \"""
        tl.store(x_ptr, 1.0)

    return inner_kernel
"""
    assert check_policy(sources.ADD + made, "triton") is None


def test_a_coding_line_stands_below_comments_alone(sources):
    assert check_policy(f"import math\n# encoding: two bits each\n{sources.ADD}", "triton") is None


OVERRIDES = {
    "a method": "    def parameters(self):\n        return iter(())\n\n",
    "a method under a condition": "    if True:\n        def half(self):\n            pass\n\n",
    "another function": "    half = torch.relu\n\n",
    "a call": "    def __call__(self, x, y):\n        return self.forward(x, y)\n\n",
    "copies": "    def __deepcopy__(self, memo):\n        return self\n\n",
    "an attribute": "    def other(self):\n        self.train = None\n\n",
    "a lambda": "    def __init__(self):\n        super().__init__()\n"
    "        self.run = lambda x: self.w\n\n",
    "a lambda on a part": "    def __init__(self):\n        super().__init__()\n"
    "        w = self.w\n        self.run = lambda x: w\n\n",
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_methods_of_a_module_are_the_originals(sources, name):
    source = sources.ADD.replace("    def forward(", f"{OVERRIDES[name]}    def forward(", 1)
    assert source != sources.ADD
    found = check_policy(source, "any", frozenset())
    assert found.rule == "overridden"


OWN_NAMES = {
    "a context's attribute": "class Turn(torch.autograd.Function):\n    @staticmethod\n"
    "    def forward(ctx, x):\n        ctx.half = 2\n        return x\n",
    "a plain class": "class Plan:\n    def __init__(self, n):\n        self.half = n // 2\n",
    "a generic one": "from typing import Generic, TypeVar\n\nT = TypeVar('T')\n\n\n"
    "class Box(Generic[T]):\n    def to(self, x):\n        return x\n",
}
AT_ONCE = (
    "self.apply(lambda m: self.begin(m))",
    "std = self.w.shape[0] ** -0.5\n        draw = lambda p: p * std",
    "sizes = [self.w, 3]\n        order = sorted(range(2), key=lambda i: sizes[i])",
    "n = self.w.ndim // 2\n        self.grid = lambda meta: (n,)",
)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_what_is_no_module_names_its_own_as_it_likes(sources, name):
    found = check_policy(f"{sources.ADD}\n\n{OWN_NAMES[name]}", "any", frozenset())
    assert found is None or found.rule != "overridden"


@pytest.mark.parametrize("line", AT_ONCE)
def test_a_constructor_may_call_functions_of_its_own(sources, line):
    built = (
        f"    def __init__(self):\n        super().__init__()\n        {line}\n\n    def forward("
    )
    source = sources.ADD.replace("    def forward(", built, 1)
    found = check_policy(source, "any", frozenset())
    assert found is None or found.rule != "overridden"


def test_a_mixin_and_a_metaclass_are_read_too(sources):
    mixin = "class Mixin:\n    def half(self):\n        pass\n\n\nclass ModelNew(Mixin, nn.Module)"
    for text in (mixin, "class ModelNew(nn.Module, metaclass=abs)"):
        source = sources.ADD.replace("class ModelNew(nn.Module)", text)
        found = check_policy(source, "any", frozenset())
        assert found.rule == "overridden"


def test_what_the_original_overrides_may_be_overridden(sources):
    text = OVERRIDES["a method"]
    source = sources.ADD.replace("    def forward(", f"{text}    def forward(", 1)
    assert check_policy(source, "any", frozenset({"parameters"})) is None
    assert check_policy(source, "any") is None


GOLDEN = Path(__file__).parents[2] / "golden" / "kernels" / "layernorm.py"
OUTSIDE = {
    "called in forward": ("        return output\n", "        return formula(x, x, x)[0]\n",
        "torch"),
    "named in forward": ("        x = x.con", "        again = formula\n        x = x.con",
        "torch"),
    "called at load": ("class ModelNew", "TABLE = formula(1, 2, 3)\n\n\nclass ModelNew", "torch"),
    "named in a string": ("class ModelNew", 'NAME = "formula"\n\n\nclass ModelNew', "torch"),
    "backward called": ("        return output\n",
        "        return Differentiable.backward(x, output)\n", "backward-called"),
    "differentiated": ("        return output\n",
        "        output.sum().backward()\n        return output\n", "backward-called"),
    "torch in the function's forward": ("        return module.forward(x)\n",
        "        return torch.layer_norm(x, [8192], ln_weight, ln_bias)\n", "torch-compute"),
    "another namespace": ("aten = torch.ops.aten", "aten = torch.ops.mine", "torch-namespace"),
    "a library": ("aten = torch.ops.aten",
        "aten = torch.ops.aten\n    torch.ops.load_library('x')", "banned-attribute"),
    "no autograd function": ("(torch.autograd.Function)", "(nn.Module)", "torch"),
}  # fmt: skip


@pytest.mark.parametrize("policy", ["triton", "mixed"])
def test_plain_torch_stands_in_the_backward_pass_alone(policy):
    assert check_policy(GOLDEN.read_text(), policy) is None


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_formula_is_for_the_backward_pass_alone(name):
    old, new, rule = OUTSIDE[name]
    source = GOLDEN.read_text()
    assert old in source
    found = check_policy(source.replace(old, new, 1), "mixed")
    assert found.rule.startswith(rule)


MAKES_LAYERS = """
    def __init__(self):
        super().__init__()
        self.layers = self._make(2)

    def _make(self, depth):
        return nn.Sequential(*[nn.Identity() for _ in range(depth)])

    def forward("""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (MAKES_LAYERS, False),
        (MAKES_LAYERS.replace("self._make(2)", "self._make"), True),
        (MAKES_LAYERS.replace("self._make(2)", "lambda: self._make(2)"), True),
        (MAKES_LAYERS.replace("_make", "extra_repr"), True),
        (MAKES_LAYERS + "self, x, y):\n        self._make(1)\n\n    def other(", True),
    ],
    ids=["called at once", "kept", "called later", "a name of torch's", "called by forward"],
)
def test_what_constructors_alone_call_may_build_layers(sources, body, refused):
    source = sources.ADD.replace("    def forward(", body.lstrip("\n"), 1)
    found = check_policy(source, "mixed")
    assert (found is not None) == refused, found


FLAG = 'torch.backends.cudnn.conv.fp32_precision == "tf32"'


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (f"x.is_cuda and {FLAG}", False),
        (f"x.is_cuda or {FLAG}", True),
        (f"not x.is_cuda and {FLAG}", True),
        (f"x.is_cuda and y.is_cuda and {FLAG}", True),
        (f"x.is_cuda and {FLAG.replace('==', '!=')}", True),
        (f"x.is_cuda and {FLAG.replace('torch', 'torch.other')}", True),
    ],
)
def test_a_gpu_alone_may_round_by_the_flag_for_convolutions(sources, text, refused):
    source = sources.ADD.replace("return out", f"rounds = {text}\n        return out")
    assert text in source
    assert (check_policy(source, "triton") is not None) == refused


@pytest.mark.parametrize("given", ["torch = y", "for torch in [y]: pass", "def torch(): pass"])
def test_no_other_torch_says_whether_a_gpu_rounds(sources, given):
    text = f"{given}\n        rounds = x.is_cuda and {FLAG}\n        return out"
    source = sources.ADD.replace("return out", text)
    found = check_policy(source, "triton")
    assert found is not None
    assert found.rule == "banned-attribute"


@pytest.mark.parametrize(
    "text",
    [
        "assert x.is_cuda",
        "if not x.is_cuda:\n            raise ValueError(x.device)",
        "if x.device.type != 'cuda':\n            raise ValueError(x.device)",
        "assert x.device == torch.device('cuda', 0), f'{x.device}'",
        "if x.device != y.device:\n            y = y.to(x.device)",
        "kept = {}\n        kept[x.device] = torch.empty(1, device=x.device)",
        "with torch.cuda.device(x.device.index):\n            pass",
    ],
)
def test_a_file_may_refuse_a_device(sources, text):
    source = sources.ADD.replace("return out", f"{text}\n        return out")
    assert text in source
    assert check_policy(source, "triton") is None
