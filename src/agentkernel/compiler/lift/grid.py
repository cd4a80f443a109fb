"""How many programs does a launch have, at fixed sizes?"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from agentkernel.compiler.lift.code import LaunchConfig
from agentkernel.compiler.lift.steps import Unliftable

Number = Callable[[int, int], int]
OPERATORS: Mapping[type[ast.operator], Number] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: Mapping[str, Callable[..., int]] = {"max": max, "min": min}


def launch_grid(config: LaunchConfig, sizes: Mapping[str, int]) -> str:
    """The grid as Python: `(triton.cdiv(8192, 1024),)` where it is a quotient, else numbers.

    `sizes` are the kernel's arguments that are numbers.
    """
    known = dict(sizes) | {k: v for k, v in config.constants if isinstance(v, int)}
    for line in config.prefix:
        statement = ast.parse(line.strip()).body[0]
        if not isinstance(statement, ast.Assign):
            raise Unliftable(f"the grid needs {line.strip()}")
        known[ast.unparse(statement.targets[0])] = _value(statement.value, known)
    axes = [_axis(text, known) for text in config.grid]
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"


def _axis(text: str, known: Mapping[str, int]) -> str:
    node = ast.parse(text, mode="eval").body
    value = _value(node, known)
    quotient = _rounded_up(node)
    if quotient is None or value == 1:
        return str(value)
    size, block = (_value(part, known) for part in quotient)
    return f"triton.cdiv({size}, {block})"


def _rounded_up(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(a, b) of `-(a // -b)`."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return None
    inner = node.operand
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.FloorDiv):
        return None
    if isinstance(inner.right, ast.UnaryOp) and isinstance(inner.right.op, ast.USub):
        return inner.left, inner.right.operand
    return None


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left, known), _value(node.right, known))
    if isinstance(node, ast.Call) and ast.unparse(node.func) in FUNCTIONS:
        return FUNCTIONS[ast.unparse(node.func)](*(_value(item, known) for item in node.args))
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, known) else node.orelse, known)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        return int(_value(node.left, known) == _value(node.comparators[0], known))
    raise Unliftable(f"the grid depends on {ast.unparse(node)}")
