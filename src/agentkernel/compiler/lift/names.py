"""What are the values of a kernel called?"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from agentkernel.compiler.lift.uses import assigned, blocks
from agentkernel.compiler.lifted_helpers import LIFTED_HELPERS

GENERATED = re.compile(r"^_?tmp\d+(?:_(?P<word>\w+?))?(?P<next>_next)?$")
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "total", ast.Sub: "difference", ast.Mult: "product", ast.Div: "quotient",
    ast.FloorDiv: "quotient", ast.Mod: "rest", ast.BitAnd: "both", ast.BitOr: "some",
    ast.Invert: "opposite", ast.USub: "negative", ast.Not: "opposite",
}  # fmt: skip
CALLS = {
    "sum": "row_sum", "max_along": "row_max", "min_along": "row_min", "any_along": "row_any",
    "product_along": "row_product", "where": "chosen", "rsqrt": "scale", "sqrt_rn": "root",
    "exp": "power", "exp2": "power", "erf": "bell", "tanh": "squashed", "sigmoid": "gate",
    "maximum": "larger", "minimum": "smaller", "log": "logarithm", "log1p": "logarithm",
    "abs": "size", "floor": "whole", "ceil": "whole", "full": "constant", "zeros": "zeros",
    "broadcast_to": "wide", "cos": "cosine", "sin": "sine", "associative_scan": "running",
    "is_negative": "negative", "expm1": "growth",
}  # fmt: skip
PARTS = {
    "welford_along": ("all_mean", "all_squares", "all_count"),
    "softmax_along": ("all_max", "all_total"),
    "max_place_along": ("best", "place"),
    "min_place_along": ("best", "place"),
    "associative_scan": ("running", "running_place"),
}
"""Function -> what the parts of its result are called."""
WORDS = {"mean": "mean", "m2": "squares", "weight": "count", "max": "row_max", "sum": "row_total"}


def rename_values(function: ast.FunctionDef, taken: set[str]) -> None:
    """Give TorchInductor's `tmp7` names that say what they hold; `taken` names stay free."""
    used = taken | {"tl", "float", *LIFTED_HELPERS}
    used |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not _made(n.id)}
    used |= {argument.arg for argument in function.args.args}
    names: dict[str, str] = {}
    for block in blocks(function.body):
        for statement in block:
            for name, value in _bindings(statement):
                if _made(name) and name not in names:
                    names[name] = _fresh(_word(name, value, names), used)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)


def _made(name: str) -> bool:
    return GENERATED.match(name) is not None


def _bindings(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    pair = assigned(statement)
    if pair is not None:
        return [pair]
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        items = statement.targets[0].elts
        parts = _parts(statement.value, len(items))
        return [
            (n.id, part) for n, part in zip(items, parts, strict=True) if isinstance(n, ast.Name)
        ]
    return []


def _parts(value: ast.expr, count: int) -> list[ast.expr]:
    """What each name of `a, b = f(x)` is named after: a word, or the call as a whole."""
    function = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    words = PARTS.get(function, ())
    if len(words) < count:
        return [value] * count
    return [ast.Constant(word) for word in words[:count]]


def _word(name: str, value: ast.expr, names: Mapping[str, str]) -> str:
    found = GENERATED.match(name)
    if found is not None and found["word"]:
        word = WORDS.get(found["word"].removesuffix("_next"), found["word"])
        return f"new_{word}" if name.endswith("_next") else word
    if name.startswith("_"):
        return "partial"
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        whole = names.get(value.value.id, "value")
        return whole.replace("all_", "row_") if whole.startswith("all_") else f"{whole}_column"
    return _word_of(value)


def _word_of(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        function = ast.unparse(value.func)
        if function == "tl.load":
            return _loaded(value)
        if function.endswith(".to") and isinstance(value.func, ast.Attribute):
            return _word_of(value.func.value)
        last = function.rpartition(".")[2]
        return CALLS.get(last, "value")
    if isinstance(value, ast.Subscript):
        return _word_of(value.value)
    if isinstance(value, ast.Compare):
        return "holds"
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return OPERATORS.get(type(value.op), "value")
    return "value"


def _loaded(call: ast.Call) -> str:
    """`x` for a load from `x_ptr + ...`."""
    names = [n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)]
    pointers = [name.removesuffix("_ptr") for name in names if name.endswith("_ptr")]
    return pointers[0] if pointers and pointers[0].isidentifier() else "value"


def _fresh(word: str, used: set[str]) -> str:
    name, number = word, 1
    while name in used:
        number += 1
        name = f"{word}_{number}"
    used.add(name)
    return name
