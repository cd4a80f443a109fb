"""Values worked out at one half of a dimension: its first or second places, or every other one.

What chose between the halves by an index, as a concatenation and a stack are lowered, has one
branch left, and what was gathered by such an index is a view of what is stored.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import sympy
import torch

from agentkernel.compiler.axes import IncompatibleAxes
from agentkernel.compiler.ir import ONE, Expr, GraphBuilder, Node, Shape, numel, same

Coefficients = dict[int, Expr]
"""Dimension, counted from the last one (-1) -> what a place grows by along it."""


class Half(NamedTuple):
    """`length` places of dimension `dim` (from the last one, -1), from `start` on."""

    dim: int
    start: int
    step: int
    length: int

    def of(self, shape: Shape) -> Shape:
        """A shape with them alone."""
        at = len(shape) + self.dim
        return (*shape[:at], sympy.Integer(self.length), *shape[at + 1 :])


@dataclass
class Halving:
    """Works values of a graph out at halves; what is in `stored` is read there."""

    stored: Collection[Node]
    b: GraphBuilder = field(default_factory=GraphBuilder)
    known: dict[tuple[Node, Half], Node] = field(default_factory=dict)

    def at(self, value: Node, half: Half) -> Node:
        """`value` at the places of `half`; itself where it has one place there. Raises
        IncompatibleAxes where a view cuts across."""
        if len(value.shape) < -half.dim or value.shape[half.dim] == 1:
            return value
        if (value, half) not in self.known:
            self.known[value, half] = self._at(value, half)
        return self.known[value, half]

    def _at(self, value: Node, half: Half) -> Node:
        if value.kind == "iota":
            return self._iota(value, half)
        if value.kind == "view":
            try:
                return self._view(value, half)
            except IncompatibleAxes:
                if value.root not in self.stored:
                    raise
        if value.root in self.stored:
            return self._slice(value, half)
        if value.kind != "pointwise":
            raise IncompatibleAxes(f"a half of {value.op}")
        args = [self.at(arg, half) for arg in value.operands]
        if value.op == "gather":
            return self._gather(value, args)
        return self._chosen(value, args) or self._truth(value, args) or self._made(value, args)

    def _slice(self, value: Node, half: Half) -> Node:
        if value.op == "cast":
            raise IncompatibleAxes("a slice of a cast is a cast of what may not be stored")
        dim = len(value.shape) + half.dim
        start, length = sympy.Integer(half.start), sympy.Integer(half.length)
        return self.b.slice(value, dim, start, length, half.step)

    def _made(self, value: Node, args: list[Node]) -> Node:
        return self.b.pointwise(value.op, *args, dtype=value.dtype, name=value.name)

    def _iota(self, value: Node, half: Half) -> Node:
        along = value.attrs[0] == len(value.shape) + half.dim
        dim, shape = value.attrs[0], half.of(value.shape)
        assert isinstance(dim, int)
        if not along:
            return self.b.iota(shape, dim)
        index = self.b.iota(shape, dim) if half.length > 1 else self.b.constant(0, torch.int64)
        if half.length > 1 and half.step > 1:
            index = self.b.pointwise("mul", index, half.step, dtype=torch.int64)
        if not half.start:
            return index
        return self.b.pointwise("add", index, half.start, dtype=torch.int64)

    def _view(self, value: Node, half: Half) -> Node:
        below = value.args[0]
        if value.op == "permute":
            order = [int(str(item)) for item in value.attrs]
            dim = order[half.dim] - len(order)
            return self.b.permute(self.at(below, half._replace(dim=dim)), order)
        if value.op == "expand":
            shape = half.of(value.shape)
            return self.b.expand(self.at(below, half), shape)
        if value.op == "reshape":
            return self.b.reshape(self.at(below, _before(value, half)), half.of(value.shape))
        raise IncompatibleAxes(f"a half of a {value.op}")

    def _gather(self, value: Node, args: list[Node]) -> Node:
        """The elements at `args`: an index, and a guard where there was one."""
        index, table = args[0], value.args[-1]
        guard = args[1] if len(args) > 1 and _known(args[1]) is None else None
        if len(args) > 1 and _known(args[1]) is False:
            return self.b.constant(0.0 if table.dtype.is_floating_point else 0, table.dtype)
        found = None if guard is not None else self._as_view(table, index)
        return found or self.b.gather(table, index, guard)

    def _as_view(self, table: Node, index: Node) -> Node | None:
        """A view of the table, where the index walks it like one."""
        root, walked = table.root, _walked(index)
        if walked is None or (table.kind == "view" and table.op != "reshape"):
            return None
        offset, steps = walked
        rank = len(index.shape)
        dims = [dim for dim in range(-rank, 0) if index.shape[dim] != 1]
        if set(dims) != set(steps) or not offset.is_number:
            return None
        dims.sort(key=lambda dim: _order(steps[dim]), reverse=True)
        ends = [numel(root.shape), *(steps[dim] for dim in dims)]
        whole = all(
            same(end, step * index.shape[dim])
            for end, step, dim in zip(ends[:-2], ends[1:-1], dims[:-1], strict=True)
        )
        row, last = ends[-2], index.shape[dims[-1]]
        if not whole or ends[-1] != 1 or not (row.is_number and last.is_number):
            return None
        if not 0 <= offset <= row - last:
            return None
        view = self.b.reshape(root, (*(index.shape[dim] for dim in dims[:-1]), row))
        if row != last:
            view = self.b.slice(view, len(dims) - 1, offset, last)
        view = self.b.permute(view, [dims.index(dim) for dim in sorted(dims)])
        return self.b.reshape(view, index.shape)

    def _chosen(self, value: Node, args: list[Node]) -> Node | None:
        """The branch of a choice that is known."""
        truth = _known(args[0]) if value.op == "where" else None
        if truth is None:
            return None
        branch = args[1] if truth else args[2]
        if branch.dtype == value.dtype:
            return branch
        return self.b.pointwise("cast", branch, dtype=value.dtype)

    def _truth(self, value: Node, args: list[Node]) -> Node | None:
        """A condition on places that holds at all of them, or at none."""
        found: bool | None = None
        if value.op == "logical_and":
            known = [_known(arg) for arg in args]
            found = False if False in known else (True if known == [True, True] else None)
            rest = [arg for arg, truth in zip(args, known, strict=True) if truth is None]
            if found is None and len(rest) == 1:
                return rest[0]
        elif value.op in ("lt", "ge") and (ranges := [_range(arg) for arg in args]):
            one, two = ranges
            if one is not None and two is not None:
                below = True if one[1] < two[0] else (False if one[0] >= two[1] else None)
                found = below if value.op == "lt" or below is None else not below
        return None if found is None else self.b.constant(found, torch.bool)


def _known(node: Node) -> bool | None:
    """What a condition is, where that is known."""
    is_fixed = node.kind == "constant" and isinstance(node.attrs[0], bool)
    return bool(node.attrs[0]) if is_fixed else None


def _range(index: Node) -> tuple[int, int] | None:
    """The least and the largest of an index that follows from its place; None for any other."""
    if index.kind == "constant" and isinstance(index.attrs[0], int):
        return index.attrs[0], index.attrs[0]
    if index.kind == "iota":
        dim = index.attrs[0]
        assert isinstance(dim, int)
        return (0, int(index.shape[dim]) - 1) if index.shape[dim].is_number else None
    if index.op not in ("add", "sub", "mul") or index.kind != "pointwise":
        return None
    ranges = [_range(arg) for arg in index.args]
    if ranges[0] is None or ranges[1] is None:
        return None
    ends = [_OPERATIONS[index.op](x, y) for x in ranges[0] for y in ranges[1]]
    return min(ends), max(ends)


_OPERATIONS = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}


def _walked(index: Node) -> tuple[Expr, Coefficients] | None:
    """An index as a number and what it grows by along each dimension; None for any other."""
    if index.kind in ("constant", "size"):
        return sympy.sympify(index.attrs[0]), {}
    if index.kind == "iota":
        dim = index.attrs[0]
        assert isinstance(dim, int)
        return sympy.Integer(0), {dim - len(index.shape): ONE}
    if index.op not in ("add", "sub", "mul") or index.kind != "pointwise":
        return None
    one, two = (_walked(arg) for arg in index.args)
    if one is None or two is None:
        return None
    (start, steps), (more, further) = one, two
    if index.op == "mul":
        if further:
            return None
        return start * more, {dim: step * more for dim, step in steps.items()}
    sign = -1 if index.op == "sub" else 1
    both = {
        dim: steps.get(dim, sympy.Integer(0)) + sign * further.get(dim, sympy.Integer(0))
        for dim in {**steps, **further}
    }
    return start + sign * more, {dim: step for dim, step in both.items() if step != 0}


def _order(step: Expr) -> tuple[int, int]:
    """Sorts what is known before what is free, which is longer."""
    return (0, int(step)) if step.is_number else (1, sympy.count_ops(step))


def _before(view: Node, half: Half) -> Half:
    """The same elements in the shape that a reshape is of."""
    shape, below = view.shape, view.args[0].shape
    at = len(shape) + half.dim
    behind, size = numel(shape[at + 1 :]), shape[at]
    inner: Expr = ONE
    for dim in range(-1, -len(below) - 1, -1):
        if same(inner, behind) and below[dim] != 1:
            if same(below[dim], size):
                return half._replace(dim=dim)
            return _across(below, dim, size, half)
        inner = inner * below[dim]
    raise IncompatibleAxes("a half across dimensions")


def _across(below: Shape, dim: int, size: Expr, half: Half) -> Half:
    """The half where a dimension of `size` is two in the other shape, or part of one there."""
    outer = next((at for at in range(dim - 1, -len(below) - 1, -1) if below[at] != 1), None)
    if outer is not None and same(below[dim] * below[outer], size):
        if half.step == 2 and below[dim] == 2:
            return Half(dim, half.start, 1, 1)
        if half.step == 1 and below[outer] == 2 and half.length == below[dim]:
            return Half(outer, half.start // half.length, 1, 1)
    elif half.length == 1 and size == 2 and below[dim].is_number and below[dim] % 2 == 0:
        return Half(dim, half.start, 2, int(below[dim]) // 2)
    raise IncompatibleAxes("a half across dimensions")
