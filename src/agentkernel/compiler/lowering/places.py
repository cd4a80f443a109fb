"""A value read at computed places, so that it need not be stored first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy
import torch

from agentkernel.compiler.axes import quotient
from agentkernel.compiler.ir import ONE, Expr, GraphBuilder, Node, Shape, numel, same

Indices = tuple[Node, ...]
MAX_OPERATIONS = 32
"""Operations that are computed again at the places; a longer value is stored and read there."""


def dim_index(b: GraphBuilder, shape: Shape, dim: int) -> Node:
    """The index along `dim` of `shape`, with the rank of it and size 1 everywhere else; 0 where
    there is but one place."""
    if shape[dim] == 1:
        return b.constant(0, torch.int64)
    return b.iota(tuple(size if at == dim else ONE for at, size in enumerate(shape)), dim)


def all_indices(b: GraphBuilder, shape: Shape) -> list[Node]:
    """The place of each element of `shape` itself: where a value of that shape is read as it is."""
    return [dim_index(b, shape, dim) for dim in range(len(shape))]


def read_at(
    b: GraphBuilder, value: Node, places: Sequence[Node], rank: int, guard: Node | None = None,
    most: int = MAX_OPERATIONS,
) -> Node:  # fmt: skip
    """`value` at `places`, one a dimension of it, each of `rank` dimensions that broadcast.

    Up to `most` operations are pushed to the places; what is stored (an input, what a library or a
    reduction gives) is read there. Where `guard` does not hold, places may lie outside: nothing is
    read, and the result is any number.
    """
    return _Reader(b, rank, guard, most).read(value, tuple(places))


def reshaped(b: GraphBuilder, value: Node, shape: Shape) -> Node:
    """The elements of `value` under another shape, read where they are."""
    reader = _Reader(b, len(shape), None, MAX_OPERATIONS)
    return reader.read(value, reader.regrouped(shape, tuple(all_indices(b, shape)), value.shape))


@dataclass
class _Reader:
    """The values read so far at the places of one call of `read_at`."""

    b: GraphBuilder
    rank: int
    guard: Node | None
    most: int
    found: dict[tuple[Node, Indices], Node] = field(default_factory=dict)

    def read(self, value: Node, places: Indices) -> Node:
        if (value, places) not in self.found:
            self.found[value, places] = self._read(value, places)
        return self.found[value, places]

    def _read(self, value: Node, places: Indices) -> Node:
        if value.kind in ("constant", "size"):
            return value
        if value.kind == "iota":
            dim = value.attrs[0]
            assert isinstance(dim, int)
            return places[dim]
        if all(size == 1 for size in value.shape):
            return self.b.reshape(value, (ONE,) * self.rank)
        if (itself := self._unmoved(value, places)) is not None:
            return itself
        if value.kind == "view":
            return self._view(value, places)
        if value.kind == "pointwise" and _operations(value) <= self.most:
            return self._pointwise(value, places)
        return self.b.gather(value, linear_index(self.b, places, value.shape), self.guard)

    def _unmoved(self, value: Node, places: Indices) -> Node | None:
        """`value` as it is where each place is the index along a dimension as long as its own."""
        shape, last = [ONE] * self.rank, -1
        for size, place in zip(value.shape, places, strict=True):
            if size == 1:
                continue
            dim = place.attrs[0] if place.kind == "iota" else -1
            assert isinstance(dim, int)
            if dim <= last or len(place.shape) != self.rank or not same(place.shape[dim], size):
                return None
            shape[dim], last = size, dim
        return self.b.reshape(value, tuple(shape))

    def _pointwise(self, value: Node, places: Indices) -> Node:
        parts = []
        for operand in value.operands:
            lead = len(value.shape) - len(operand.shape)
            own = (
                self._zero() if size == 1 else place
                for size, place in zip(operand.shape, places[lead:], strict=True)
            )
            parts.append(self.read(operand, tuple(own)))
        if value.op == "gather":
            guards = [item for item in (*parts[1:], self.guard) if item is not None]
            return self.b.gather(value.args[-1], parts[0], all_guards(self.b, guards))
        return self.b.pointwise(value.op, *parts, dtype=value.dtype, name=value.name)

    def _view(self, view: Node, places: Indices) -> Node:
        below = view.args[0]
        if view.op == "permute":
            order = [int(str(item)) for item in view.attrs]
            return self.read(below, tuple(places[order.index(dim)] for dim in range(len(order))))
        if view.op == "expand":
            kept = zip(below.shape, places, strict=True)
            return self.read(below, tuple(self._zero() if s == 1 else p for s, p in kept))
        if view.op == "slice":
            dim, start, step = view.attrs
            assert isinstance(dim, int)
            moved = add_index(self.b, mul_index(self.b, places[dim], step), start)
            return self.read(below, (*places[:dim], moved, *places[dim + 1 :]))
        if below.kind in ("input", "library", "reduce", "field"):
            return self.b.gather(below, linear_index(self.b, places, view.shape), self.guard)
        return self.read(below, self.regrouped(view.shape, places, below.shape))

    def regrouped(self, shape: Shape, places: Indices, wanted: Shape) -> Indices:
        """Places of `shape` as places of the same elements under the shape `wanted`."""
        given = [(s, p) for s, p in zip(shape, places, strict=True) if s != 1]
        found: list[Node] = []
        sizes = [size for size in wanted if size != 1]
        while sizes:
            ours, theirs = _last_group([size for size, _ in given], sizes)
            here, given = given[len(given) - ours :], given[: len(given) - ours]
            some, sizes = sizes[len(sizes) - theirs :], sizes[: len(sizes) - theirs]
            if ours == theirs == 1:
                found.append(here[0][1])
                continue
            flat = linear_index(
                self.b, [place for _, place in here], tuple(size for size, _ in here)
            )
            found += reversed(_taken_apart(self.b, flat, some))
        rest = iter(reversed(found))
        return tuple(self._zero() if size == 1 else next(rest) for size in wanted)

    def _zero(self) -> Node:
        return self.b.constant(0, torch.int64)


def _operations(value: Node) -> int:
    """Operations down to what is stored; more than any limit where an index is asserted, which
    holds at the places of the value itself."""
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node in seen or node.kind not in ("pointwise", "view"):
            continue
        if node.op == "within":
            return MAX_OPERATIONS + 1
        seen.add(node)
        waiting += node.operands
    return sum(node.kind == "pointwise" for node in seen)


def _last_group(ours: Sequence[Expr], theirs: Sequence[Expr]) -> tuple[int, int]:
    """How many of the last sizes of each side hold the same elements; all where that is unknown."""
    left, right = 1, 1
    while left <= len(ours) and right <= len(theirs):
        one, other = numel(ours[len(ours) - left :]), numel(theirs[len(theirs) - right :])
        if same(one, other):
            return left, right
        if quotient(other, one) is not None:
            left += 1
        elif quotient(one, other) is not None:
            right += 1
        else:
            break
    return len(ours), len(theirs)


def _taken_apart(b: GraphBuilder, index: Node, sizes: Sequence[Expr]) -> list[Node]:
    """A flat index over `sizes` as one place a dimension, outermost first."""
    found: list[Node] = []
    inner: Expr = ONE
    for position in reversed(range(len(sizes))):
        place = index if inner == 1 else div_index(b, "floordiv", index, inner)
        found.append(div_index(b, "mod", place, sizes[position]) if position else place)
        inner = inner * sizes[position]
    return list(reversed(found))


def div_index(b: GraphBuilder, op: str, place: Node, by: Expr) -> Node:
    """`place // by` (op `floordiv`) or `place % by` (`mod`); what is known is worked out."""
    value = static_int(place)
    if value is not None and by.is_number:
        return b.constant(value // int(by) if op == "floordiv" else value % int(by), torch.int64)
    return b.pointwise(op, place, int_or_expr(by), dtype=torch.int64)


def linear_index(
    b: GraphBuilder, places: Sequence[Node], shape: Shape, *, single: bool = False
) -> Node:
    """The index of the element at `places` of what lies in memory as `shape` says; `single`, with
    the places of dimensions of size 1, which are 0."""
    steps: list[Node] = []
    stride: Expr = ONE
    for place, size in zip(reversed(places), reversed(shape), strict=True):
        if single or size != 1:
            steps.append(mul_index(b, place, stride))
            stride = stride * size
    result = b.constant(0, torch.int64)
    for step in reversed(steps):
        result = add_index(b, result, step)
    return result


def all_guards(b: GraphBuilder, guards: Sequence[Node]) -> Node | None:
    """What holds where all guards do; None without any."""
    if not guards:
        return None
    return functools.reduce(
        lambda left, right: b.pointwise("logical_and", left, right, name="inside"), guards
    )


def add_index(b: GraphBuilder, place: Node, other: object) -> Node:
    """`place + other`; what is known is worked out."""
    value, more = static_int(place), static_int(other)
    if value is not None and more is not None:
        return b.constant(value + more, torch.int64)
    if more == 0:
        return place
    if value == 0 and isinstance(other, Node):
        return other
    if more is not None and more < 0:
        return b.pointwise("sub", place, -more, dtype=torch.int64, name="place")
    return b.pointwise("add", place, _index_operand(other), dtype=torch.int64, name="place")


def mul_index(b: GraphBuilder, place: Node, factor: object) -> Node:
    """`place * factor`; what is known is worked out."""
    value, more = static_int(place), static_int(factor)
    if value is not None and more is not None:
        return b.constant(value * more, torch.int64)
    if more == 1 or value == 0:
        return place
    return b.pointwise("mul", place, _index_operand(factor), dtype=torch.int64, name="place")


def static_int(value: object) -> int | None:
    """The whole number that a place or a size is; None where it depends on something."""
    if isinstance(value, Node):
        value = value.attrs[0] if value.kind == "constant" else None
    return int(value) if isinstance(value, int | sympy.Integer) else None


def _index_operand(value: object) -> Node | int | Expr:
    if isinstance(value, Node):
        return value
    return int_or_expr(sympy.sympify(value))


def int_or_expr(size: Expr) -> int | Expr:
    """A known size as a plain number, so that kernels have it in their text."""
    return int(size) if isinstance(size, sympy.Integer) else size
