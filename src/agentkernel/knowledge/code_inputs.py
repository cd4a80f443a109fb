"""Which inputs does a source's `get_inputs` make, by its literals alone?"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

FACTORIES = {
    "randint": "int64",
    "randperm": "int64",
    "arange": "int64",
    **dict.fromkeys(("rand", "randn", "zeros", "ones", "empty", "full", "normal"), "float32"),
    **dict.fromkeys(("tensor", "linspace", "eye", "rand_like", "randn_like"), "float32"),
}
"""torch functions that make an input -> the dtype that they give unless told."""
DTYPE_METHODS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}
DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"),
        *("uint8", "bool", "float8_e4m3fn", "float8_e5m2"),
    )
)


@dataclass(frozen=True)
class InputFacts:
    """What `get_inputs` says: the first tensor's rank, and the dtypes in order."""

    rank: int | None = None
    dtypes: tuple[str, ...] = ()


def inputs_of(tree: ast.Module) -> InputFacts:
    """Rank and dtypes from the literals of `get_inputs`; floating dtypes first, none twice."""
    function = next(
        (
            item
            for item in tree.body
            if isinstance(item, ast.FunctionDef) and item.name == "get_inputs"
        ),
        None,
    )
    if function is None:
        return InputFacts()
    made: dict[str, ast.expr] = {}
    for node in [*tree.body, *ast.walk(function)]:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made[node.targets[0].id] = node.value
    answers = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    items = _elements(answers[-1], made) if answers else []
    found = [fact for item in items if (fact := _input_fact(item, made))]
    names = dict.fromkeys(name for _, name in found)
    return InputFacts(
        rank=found[0][0] if found else None,
        dtypes=tuple(sorted(names, key=lambda name: "float" not in name)),
    )


def _elements(node: ast.expr | None, made: Mapping[str, ast.expr]) -> list[ast.expr]:
    if isinstance(node, ast.Name) and node.id in made:
        node = made[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    return [] if node is None else [node]


def _input_fact(node: ast.expr, made: Mapping[str, ast.expr]) -> tuple[int | None, str] | None:
    """(rank, dtype) of one input expression; None where no factory call is found in it."""
    dtype = ""
    for _ in range(12):
        if isinstance(node, ast.Name) and node.id in made:
            node = made[node.id]
        elif isinstance(node, ast.BinOp):
            node = node.left if _has_call(node.left) else node.right
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            dtype = dtype or _dtype_argument(node) or DTYPE_METHODS.get(name, "")
            if name in FACTORIES:
                return _factory_rank(node, name, made), dtype or FACTORIES[name]
            node = node.func.value
            if isinstance(node, ast.Name) and node.id not in made:
                return None
        else:
            return None
    return None


def _has_call(node: ast.expr) -> bool:
    return any(isinstance(item, ast.Call | ast.Name) for item in ast.walk(node))


def _dtype_argument(call: ast.Call) -> str:
    named = [item.value for item in call.keywords if item.arg == "dtype"]
    for value in [*named, *call.args]:
        if isinstance(value, ast.Attribute) and value.attr in DTYPES | DTYPE_METHODS.keys():
            return DTYPE_METHODS.get(value.attr, value.attr)
    return ""


def _factory_rank(call: ast.Call, name: str, made: Mapping[str, ast.expr]) -> int | None:
    if name in ("arange", "randperm", "linspace"):
        return 1
    sizes = [item for item in call.args if not isinstance(item, ast.Attribute)]
    sizes = [item.value for item in call.keywords if item.arg == "size"] or sizes
    for item in sizes:
        value = made.get(item.id) if isinstance(item, ast.Name) else item
        if isinstance(value, ast.List | ast.Tuple):
            return _depth(value) if name == "tensor" else len(value.elts)
    return None if name in ("full", "tensor", "randint", "normal") else len(sizes) or None


def _depth(node: ast.expr) -> int:
    inner = node.elts[0] if isinstance(node, ast.List | ast.Tuple) and node.elts else None
    return 0 if not isinstance(node, ast.List | ast.Tuple) else 1 + (_depth(inner) if inner else 0)
