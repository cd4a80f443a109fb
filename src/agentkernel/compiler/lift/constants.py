"""Where may a constant tensor be written as the number that it holds?"""

from __future__ import annotations

import ast
from dataclasses import dataclass

INTEGERS = ("tl.int32", "tl.int64")
PAIRED = {"maximum": (0, 1), "minimum": (0, 1), "tl.where": (1, 2), "tl.maximum": (0, 1),
          "tl.minimum": (0, 1)}  # fmt: skip
"""Functions that bring two arguments to one type, and which ones."""


@dataclass(frozen=True)
class Number:
    """What `tl.full([1], value, dtype)` holds."""

    value: ast.expr
    dtype: str


def number_of(node: ast.expr) -> Number | None:
    """The number behind `tl.full([1, 1], value, dtype)`, be it cast to fp32, or None."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".to"):
        inner = number_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if inner is None or inner.dtype not in INTEGERS or not _is_int(inner.value):
            return None
        text = f"{int(ast.unparse(inner.value))}.0"
        wide = ast.unparse(node.args[0]) == "tl.float32"
        return Number(ast.parse(text, mode="eval").body, "tl.float32") if wide else None
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.full":
        return None
    if len(node.args) != 3 or not isinstance(node.args[0], ast.List):
        return None
    if any(not isinstance(n, ast.Constant) or n.value != 1 for n in node.args[0].elts):
        return None
    return Number(node.args[1], ast.unparse(node.args[2]))


class InlineConstants(ast.NodeTransformer):
    """Replaces the names of constant tensors beside an operand that is no constant.

    A plain number takes the type of what it meets. For fp32 that is what the tensor would have
    done, all other arithmetic being fp32; a 64-bit integer could stay narrow, so it is written out
    in comparisons alone.
    """

    def __init__(self, known: dict[str, Number]) -> None:
        self._known = known

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`x + c`."""
        self.generic_visit(node)
        kinds = ("tl.float32",)
        node.left, node.right = self._pair(node.left, node.right, kinds)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`x < c`."""
        self.generic_visit(node)
        kinds = ("tl.float32", "tl.int32", "tl.int64")
        node.left, node.comparators[0] = self._pair(node.left, node.comparators[0], kinds)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`tl.where(mask, x, c)`."""
        self.generic_visit(node)
        places = PAIRED.get(ast.unparse(node.func))
        if places is not None and len(node.args) > places[1]:
            one, two = places
            kinds = ("tl.float32", "tl.int32")
            pair = self._pair(node.args[one], node.args[two], kinds)
            node.args[one], node.args[two] = pair
            if one == 0 and isinstance(node.args[0], ast.Constant):
                node.args[:2] = reversed(node.args[:2])
        return node

    def _pair(
        self, left: ast.expr, right: ast.expr, kinds: tuple[str, ...]
    ) -> tuple[ast.expr, ast.expr]:
        a, b = self._number(left), self._number(right)
        if a is not None and b is None and a.dtype in kinds and not _literal(right):
            return a.value, right
        if b is not None and a is None and b.dtype in kinds and not _literal(left):
            return left, b.value
        return left, right

    def _number(self, node: ast.expr) -> Number | None:
        return self._known.get(node.id) if isinstance(node, ast.Name) else None


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _literal(node: ast.expr) -> bool:
    """A plain number: two of them would make no tensor."""
    return not any(isinstance(n, ast.Name) and n.id != "float" for n in ast.walk(node))
