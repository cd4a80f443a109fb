"""Which branches of a template can be taken now, its sizes being known?"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from agentkernel.compiler.lift.uses import assigned, blocks, uses_of

Value = int | bool
ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Mult: operator.mul,
    ast.Sub: operator.sub,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.NotEq: operator.ne,
}


def resolve_branches(function: ast.FunctionDef) -> None:
    """Replace each `if` whose condition is known by the branch that it takes, and name the
    precision of products."""
    known = _numbers(function)
    changed = True
    while changed:
        changed = any(_take(block, known) for block in blocks(function.body))
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot":
            _name_precision(node, known)


def _numbers(function: ast.FunctionDef) -> dict[str, Value]:
    """Names that hold one number throughout."""
    uses = uses_of(function)
    found: dict[str, Value] = {}
    for statement in function.body:
        pair = assigned(statement)
        value = pair[1].value if pair and isinstance(pair[1], ast.Constant) else None
        if pair is not None and isinstance(value, int) and uses.once(pair[0]):
            found[pair[0]] = value
    return found


def _take(block: list[ast.stmt], known: Mapping[str, Value]) -> bool:
    for place, statement in enumerate(block):
        if isinstance(statement, ast.If):
            test = _evaluated(statement.test, known)
            if test is not None:
                block[place : place + 1] = statement.body if test else statement.orelse
                return True
    return False


def _evaluated(node: ast.expr, known: Mapping[str, Value]) -> Value | None:
    """The value of an expression of known numbers; None where something is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BoolOp):
        parts = [_evaluated(item, known) for item in node.values]
        if None in parts:
            return None
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _evaluated(node.operand, known)
        return None if inner is None else not inner
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = _evaluated(node.left, known), _evaluated(node.right, known)
        return None if left is None or right is None else ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        left, right = _evaluated(node.left, known), _evaluated(node.comparators[0], known)
        return (
            None if left is None or right is None else COMPARISONS[type(node.ops[0])](left, right)
        )
    return None


def _name_precision(call: ast.Call, known: Mapping[str, Value]) -> None:
    """`allow_tf32=False` as `input_precision="ieee"`."""
    for keyword in call.keywords:
        if keyword.arg == "allow_tf32":
            allowed = _evaluated(keyword.value, known)
            if allowed is not None:
                keyword.arg = "input_precision"
                keyword.value = ast.Constant("tf32" if allowed else "ieee")
