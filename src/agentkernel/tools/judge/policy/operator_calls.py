"""Calls of PyTorch's own operators and of its library in a source, and how often each may run.

`torch.ops.aten.NAME.OVERLOAD(...)` is the one form in which an operator may be called that is no
product, convolution or attention: what is called and how often is then to be read off the text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.policy.definitions import FUNCTIONS, Finding
from agentkernel.tools.judge.policy.expressions import constant_value, is_matmul
from agentkernel.tools.judge.policy.families import (
    CALLED_BY_NAME,
    DISGUISE,
    GraphOperators,
    Work,
    family,
    parts,
)
from agentkernel.tools.judge.policy.kernel_source import last_word
from agentkernel.tools.judge.policy.names import LIBRARY_METHODS, LIBRARY_OPS

SPACE = "torch.ops.aten."
WORDS = 5
MANY = 1 << 10
"""Runs of a library call in a loop of unknown length."""
LOOPS = (ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
INSIDE = (ast.Lambda, *FUNCTIONS, ast.ClassDef)


class OperatorCall(NamedTuple):
    """One place that calls an operator, by its path below torch, and the function around it."""

    node: ast.Call
    path: str
    home: ast.FunctionDef


class OperatorCalls:
    """The calls of operators in the functions that forward may run. `path` resolves a dotted name,
    `model` is ModelNew."""

    def __init__(
        self,
        forward: Sequence[ast.FunctionDef],
        model: ast.ClassDef | None,
        path: Callable[[ast.AST], str],
    ) -> None:
        self._path = path
        self._forward = forward
        self._model = model
        self._known: dict[int, int | None] = {}
        self._calls = [
            OperatorCall(node, path(node.func), function)
            for function in forward
            for node in _own_nodes(function)
            if isinstance(node, ast.Call) and _is_named(node.func, path)
        ]
        self.nodes = {id(part) for call in self._calls for part in ast.walk(call.node.func)}
        """Ids of the names of the operators called so, and of all that they consist of."""

    def violations(self, original: GraphOperators) -> Iterator[Finding]:
        """What the original's graph does not allow, then whether it is the original again."""
        called: dict[str, Work] = {}
        covered: list[tuple[str, ...]] = []
        for call in self._calls:
            name = call.path.removeprefix(SPACE).split(".")[0]
            wrong = _unfit(call)
            times = self._times(call.node, call.home)
            covered += [parts(name, _given(call.node))] * min(times or MANY, MANY)
            if wrong or name in CALLED_BY_NAME:
                yield from [Finding(call.node, "operator", wrong)] if wrong else []
                continue
            if times is None:
                text = f"{call.path}: it has to be seen how often it runs"
                yield Finding(call.node, "operator", text)
                continue
            known = called.get(family(name), Work(0))
            called[family(name)] = Work(known.calls + times)
            refused = original.refusal({family(name): called[family(name)]})
            if refused:
                yield Finding(call.node, "operator", refused)
        covered += self._library()
        if original.covered_by(covered):
            yield Finding(self._model or ast.Pass(), "library-alone", DISGUISE)

    def _library(self) -> Iterator[tuple[str, ...]]:
        """What the products, convolutions and attention of the library's other names compute."""
        for function in self._forward:
            for node in _own_nodes(function):
                found = self._product(node)
                if found:
                    times = self._times(node, function)
                    yield from [found] * min(times or MANY, MANY)

    def _product(self, node: ast.AST) -> tuple[str, ...]:
        if is_matmul(node):
            return parts("matmul")
        if not isinstance(node, ast.Call) or id(node.func) in self.nodes:
            return ()
        path = self._path(node.func)
        name = path.rpartition(".")[2]
        if path in LIBRARY_OPS:
            return parts(name, _given(node))
        if path.startswith("self."):
            return self._layer(path)
        if isinstance(node.func, ast.Attribute) and node.func.attr in LIBRARY_METHODS:
            return parts(node.func.attr, _given(node))
        return ()

    def _layer(self, path: str) -> tuple[str, ...]:
        """A layer that a constructor makes: with a bias, unless it says otherwise."""
        for node in ast.walk(self._model) if self._model else ():
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            kind = last_word(node.value.func)
            if path in map(self._path, node.targets) and kind.startswith(("Linear", "Conv")):
                bare = any(
                    item.arg == "bias" and constant_value(item.value) is False
                    for item in node.value.keywords
                )
                return parts("linear", () if bare else ("bias",))
        return ()

    def _times(self, node: ast.AST, home: ast.FunctionDef) -> int | None:
        """How often one call of the model runs `node` of `home`; None where that is not seen."""
        inside = _repeats(home, node)
        runs = None if inside is None else self._runs(home)
        return None if inside is None or runs is None else inside * runs

    def _runs(self, function: ast.FunctionDef) -> int | None:
        """How often one call of the model runs `function`, as its name is called: None where it is
        handed on, or calls itself."""
        if id(function) not in self._known:
            self._known[id(function)] = None
            self._known[id(function)] = self._sum_of_calls(function)
        return self._known[id(function)]

    def _sum_of_calls(self, function: ast.FunctionDef) -> int | None:
        if self._model is not None and function in self._model.body and function.name == "forward":
            return 1
        total = 0
        for home in self._forward:
            called = {
                id(node.func): node for node in _own_nodes(home) if isinstance(node, ast.Call)
            }
            for item in ast.walk(home):
                named = isinstance(item, ast.Name | ast.Attribute)
                if not named or last_word(item) != function.name:
                    continue
                times = self._times(called[id(item)], home) if id(item) in called else None
                if times is None:
                    return None
                total += times
        return total or None


def _is_named(node: ast.expr, path: Callable[[ast.AST], str]) -> bool:
    """Whether it is written `torch.ops.aten.NAME.OVERLOAD`, of the module torch."""
    words = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
    return (
        len(words) == WORDS and words[:3] == SPACE.split(".")[:3] and path(node).startswith(SPACE)
    )


def _unfit(call: OperatorCall) -> str:
    """Why the operator is none that a source may call, whatever the original does."""
    import torch

    name, overload = call.path.removeprefix(SPACE).split(".")
    found = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        return f"{call.path} is no operator of PyTorch's"
    if any(item.alias_info and item.alias_info.is_write for item in found._schema.arguments):
        return f"{call.path} writes to what it is given"
    starred = any(isinstance(item, ast.Starred) for item in call.node.args)
    if starred or any(item.arg is None for item in call.node.keywords):
        return f"{call.path}: name its arguments one by one"
    return ""


def _given(node: ast.Call) -> set[str]:
    """What a product, a convolution or attention takes beside its operands."""
    found: set[str] = set()
    names = {
        item.arg: item.value for item in node.keywords if constant_value(item.value) is not False
    }
    for word, place in (("bias", 2), ("mask", 3)):
        value = node.args[place] if len(node.args) > place else names.get(word)
        found |= {word} if value is not None and not _is_none(value) else set()
    masked = "attn_mask" in names and not _is_none(names["attn_mask"])
    found |= {"mask"} if masked or "is_causal" in names else set()
    return found | ({"scale"} if names.keys() & {"alpha", "beta"} else set())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What the function itself runs: not what functions and classes inside it do."""
    inside: list[ast.AST] = list(function.body)
    while inside:
        node = inside.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            inside += ast.iter_child_nodes(node)


def _repeats(function: ast.FunctionDef, wanted: ast.AST) -> int | None:
    """How often one run of `function` comes to `wanted`: once for each turn of the loops over
    ranges of written numbers around it; None in any other loop, a lambda or an inner function."""

    def visit(node: ast.AST, times: int | None) -> tuple[bool, int | None]:
        if node is wanted:
            return True, times
        for child in ast.iter_child_nodes(node):
            repeated = isinstance(node, LOOPS) or (
                isinstance(node, INSIDE) and node is not function
            )
            count: int | None = None if repeated else 1
            if isinstance(node, ast.For) and child is not node.iter:
                count = _turns(node.iter)
            inner = None if times is None or count is None else times * count
            found = visit(child, inner)
            if found[0]:
                return found
        return False, None

    return visit(function, 1)[1]


def _turns(node: ast.expr) -> int | None:
    """Of `range(3)` and the like with written numbers; None for anything else."""
    if not isinstance(node, ast.Call) or node.keywords or ast.unparse(node.func) != "range":
        return None
    try:
        numbers = [read_literal(ast.unparse(item)) for item in node.args]
        whole = [item for item in numbers if isinstance(item, int)]
        return len(range(*whole)) if len(whole) == len(numbers) else None
    except (OverflowError, TypeError, ValueError, SyntaxError):
        return None
