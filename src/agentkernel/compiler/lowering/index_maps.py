"""Shape calls as index maps, and values read at computed indices so that they need no storage."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy
import torch
from torch import fx

from agentkernel.compiler.axes import quotient, regroups
from agentkernel.compiler.ir import (
    ONE,
    Expr,
    GraphBuilder,
    Node,
    Scalar,
    Shape,
    UnsupportedOp,
    broadcast,
    numel,
    same,
)
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr
from agentkernel.compiler.rewrite.patterns import convolution_of

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
        if value.kind == "scan" and (moved := self._scan(value, places)) is not None:
            return moved
        computed = _computed(value) if value.kind == "pointwise" else None
        if computed is not None and len(computed) <= self.most:
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
            return self._gathered(value.args[-1], parts[0], all_guards(self.b, guards))
        index = value.op == "sub" and value.dtype == torch.int64
        if index and parts[1].op == "sub" and parts[1].args[0] is parts[0]:
            return parts[1].args[1]  # n - (n - place)
        return self.b.pointwise(value.op, *parts, dtype=value.dtype, name=value.name)

    def _gathered(self, table: Node, index: Node, guard: Node | None) -> Node:
        """The elements of `table` at `index`; the table where these are its own places."""
        own = linear_index(self.b, all_indices(self.b, table.shape), table.shape)
        if guard is None and self.rank == len(table.shape) and index is own:
            return table
        return self.b.gather(table, index, guard)

    def _scan(self, scan: Node, places: Indices) -> Node | None:
        """A scan read from its end on, or some places later, is one of elements that are read so;
        None for other places."""
        dim, backwards = scan.attrs
        assert isinstance(dim, int)
        if self.guard is not None:
            return None if backwards else self._later(scan, places, dim)
        own = all_indices(self.b, scan.shape)
        back = [
            self.b.pointwise("sub", int_or_expr(size - 1), place, dtype=torch.int64)
            for size, place in zip(scan.shape, own, strict=True)
        ]
        if self.rank != len(own) or any(
            place not in pair for place, *pair in zip(places, own, back, strict=True)
        ):
            return None
        operand = self.read(scan.args[0], places)
        if operand.shape != scan.shape:
            return None
        turned = (places[dim] is back[dim]) != backwards
        return self.b.scan_like(scan, operand, reverse=turned)

    def _later(self, scan: Node, places: Indices, dim: int) -> Node | None:
        """The scan of a sum or product whose first element stands `first` places later: the places
        before count nothing."""
        place = places[dim]
        if scan.op not in ("sum", "prod") or place.op != "sub" or place.args[0].kind != "iota":
            return None
        b, index = self.b, place.args[0]
        first, length = static_int(place.args[1]), index.shape[dim] if self.rank > dim else ONE
        shape = (*scan.shape[:dim], length, *scan.shape[dim + 1 :])
        own = all_indices(b, shape)
        others = all(places[at] is own[at] for at in range(len(own)) if at != dim)
        if first is None or not others or self.rank != len(own) or own[dim] is not index:
            return None
        held = b.pointwise("ge", index, first)
        if not (scan.shape[dim] + first - length).is_nonnegative:
            within = b.pointwise("lt", index, int_or_expr(scan.shape[dim] + first))
            held = b.pointwise("logical_and", held, within)
        term = read_at(b, scan.args[0], places, self.rank, held, self.most)
        neutral = int(scan.op == "prod")
        given = float(neutral) if scan.dtype.is_floating_point else neutral
        term = b.pointwise("where", held, term, given, dtype=scan.dtype)
        return b.scan_like(scan, term) if term.shape == shape else None

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
        if below.kind in ("input", "library", "reduce", "scan", "scatter", "field"):
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


def moves(value: Node) -> bool:
    """Whether `value` is read from other places, by so few operations that it may be read at others
    still: a cat, a pad, a roll."""
    found = _computed(value)
    return found is not None and any(node.op == "gather" for node in found)


def _computed(value: Node) -> set[Node] | None:
    """The operations down to what is stored, of which there are at most MAX_OPERATIONS; None where
    there are more, where an index is asserted, which holds at the places of the value itself, and
    where they are the epilogue of a convolution, whose result is not stored for others to compute
    them again. A product is read where it has to be: an epilogue may rotate its rows."""
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if _has_epilogue(node):
            return None
        if node in seen or node.kind not in ("pointwise", "view"):
            continue
        if node.op == "within":
            return None
        seen.add(node)
        waiting += node.operands
    found = {node for node in seen if node.kind == "pointwise"}
    return found if len(found) <= MAX_OPERATIONS else None


def _has_epilogue(node: Node) -> bool:
    call = node.attrs[0] if node.kind == "library" and node.attrs else None
    return isinstance(call, fx.Node) and convolution_of(call) is not None


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


@lowers("view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints",
        "unflatten.int", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
        "view_as.default")  # fmt: skip
def _reshape(state: Lowering, x: Node, *_: object) -> Lowered:
    return _viewed(state, x, state.shape)


def _viewed(state: Lowering, x: Node, shape: Shape) -> Node:
    """A view of what is stored, and where sizes show how the dimensions fall into one another;
    else, as for `H // 4`, the value at the places that the elements had before."""
    if x.kind in ("input", "library") or regroups(x.shape, shape):
        return state.b.reshape(x, shape)
    found = reshaped(state.b, x, shape)
    return state.b.expand(leading(state, found, shape), shape)


@lowers("pixel_shuffle.default", "pixel_unshuffle.default")
def _pixel_shuffle(state: Lowering, x: Node, factor: int) -> Lowered:
    """[..., C * r * r, H, W] as [..., C, H * r, W * r], or the other way round."""
    b = state.b
    unshuffled = "unshuffle" in str(getattr(state.call, "target", ""))
    *lead, channels = (x.shape if unshuffled else state.shape)[:-2]
    rank, r = len(lead), sympy.Integer(factor)
    if unshuffled:
        split = _viewed(state, x, (*lead, channels, state.shape[-2], r, state.shape[-1], r))
        order = [rank, rank + 2, rank + 4, rank + 1, rank + 3]
    else:
        split = _viewed(state, x, (*lead, channels, r, r, *x.shape[-2:]))
        order = [rank, rank + 3, rank + 1, rank + 4, rank + 2]
    return b.reshape(b.permute(split, [*range(rank), *order]), state.shape)


@lowers("permute.default")
def _permute(state: Lowering, x: Node, order: Sequence[int]) -> Lowered:
    return state.b.permute(x, [index % len(x.shape) for index in order])


@lowers("transpose.int", "swapaxes.default")
def _transpose(state: Lowering, x: Node, first: int, second: int) -> Lowered:
    order = list(range(len(x.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return state.b.permute(x, order)


@lowers("t.default", "numpy_T.default")
def _t(state: Lowering, x: Node) -> Lowered:
    return state.b.permute(x, list(reversed(range(len(x.shape)))))


@lowers("expand.default", "broadcast_to.default", "expand_as.default")
def _expand(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    return state.b.expand(leading(state, x, state.shape), state.shape)


def leading(state: Lowering, x: Node, shape: Shape) -> Node:
    """Prepend dimensions of size 1 up to the rank of `shape`."""
    missing = len(shape) - len(x.shape)
    return state.b.reshape(x, (ONE,) * missing + x.shape) if missing else x


@lowers("repeat_interleave.self_int")
def _repeat_interleave(
    state: Lowering, x: Node, repeats: object, dim: int | None = None, **_: object
) -> Lowered:
    b, times = state.b, to_expr(repeats)
    if dim is None:
        x, dim = b.reshape(x, (numel(x.shape),)), 0
    dim %= len(x.shape)
    before, after = x.shape[: dim + 1], x.shape[dim + 1 :]
    one = b.reshape(x, (*before, ONE, *after))
    return b.reshape(b.expand(one, (*before, times, *after)), state.shape)


@lowers("broadcast_tensors.default")
def _broadcast_tensors(state: Lowering, tensors: Sequence[Node]) -> Lowered:
    shape = broadcast([item.shape for item in tensors])
    return tuple(state.b.expand(leading(state, item, shape), shape) for item in tensors)


@lowers("select.int")
def _select(state: Lowering, x: Node, dim: int, index: int) -> Lowered:
    dim %= len(x.shape)
    start = to_expr(index) if not isinstance(index, int) or index >= 0 else x.shape[dim] + index
    one = state.b.slice(x, dim, start, ONE)
    return state.b.reshape(one, tuple(s for at, s in enumerate(x.shape) if at != dim))


@lowers("chunk.default", "split.Tensor", "split_with_sizes.default", "split.sizes")
def _split(state: Lowering, x: Node, _sizes: object, dim: int = 0) -> Lowered:
    assert state.call is not None
    dim %= len(x.shape)
    parts: list[Node] = []
    start: Expr = sympy.Integer(0)
    for value in state.call.meta["val"]:
        length = to_expr(value.shape[dim])
        parts.append(state.b.slice(x, dim, start, length))
        start = start + length
    return tuple(parts)


@lowers("unbind.int")
def _unbind(state: Lowering, x: Node, dim: int = 0) -> Lowered:
    dim %= len(x.shape)
    if not x.shape[dim].is_number:
        raise UnsupportedOp("aten.unbind", "a symbolic number of parts")
    rest = tuple(s for at, s in enumerate(x.shape) if at != dim)
    return tuple(
        state.b.reshape(state.b.slice(x, dim, sympy.Integer(index), ONE), rest)
        for index in range(int(x.shape[dim]))
    )


@lowers("full.default", "zeros.default", "ones.default", "scalar_tensor.default",
        "full_like.default", "zeros_like.default", "ones_like.default", "new_zeros.default",
        "new_ones.default", "new_full.default", "empty_like.default", "new_empty.default",
        "empty.memory_format")  # fmt: skip
def _full(state: Lowering, *args: object, **_: object) -> Lowered:
    """One value everywhere; 0 for a tensor whose elements eager leaves open."""
    name = str(getattr(state.call, "target", ""))
    value: object = 1 if "ones" in name else 0
    if "full" in name:
        value = args[2 if "new" in name else 1]
    if "scalar_tensor" in name:
        value = args[0]
    if not isinstance(value, bool | int | float):
        raise UnsupportedOp(name, "a fill value that is no number")
    number = float(value) if state.dtype.is_floating_point else value
    constant = state.b.constant(number, state.dtype)
    shape = state.shape
    return state.b.expand(leading(state, constant, shape), shape) if shape else constant


@lowers("arange.default", "arange.start", "arange.start_step")
def _arange(state: Lowering, *bounds: int, **_: object) -> Lowered:
    b = state.b
    index: Node = b.iota(state.shape, 0)
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    if step != 1:
        index = b.pointwise("mul", index, step)
    return b.pointwise("add", index, start) if start != 0 else index


@lowers("linspace.default")
def _linspace(state: Lowering, start: Scalar, end: Scalar, steps: int, **_: object) -> Lowered:
    """From the nearer end, as eager does."""
    b = state.b
    if not state.dtype.is_floating_point or not isinstance(steps, int) or steps < 2:
        raise UnsupportedOp("aten.linspace", "of integers, or a free number of steps")
    place = b.iota(state.shape, 0)
    step = (end - start) / (steps - 1)
    from_end = b.pointwise("sub", steps - 1, place, dtype=torch.int64)
    up = b.pointwise("mul", state.cast(place, torch.float32), step)
    down = b.pointwise("mul", state.cast(from_end, torch.float32), step)
    near = b.pointwise("lt", place, steps // 2)
    return b.pointwise("where", near, b.pointwise("add", start, up), b.pointwise("sub", end, down))


@lowers("diagonal.default", "diagonal_copy.default", "diag.default")
def _diagonal(state: Lowering, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Lowered:
    b, rank = state.b, len(x.shape)
    if rank < 2:
        raise UnsupportedOp("aten.diag", "a matrix of a vector")
    along = dim_index(b, state.shape, rank - 2)
    rest = iter(all_indices(b, state.shape)[:-1])
    first, second = dim1 % rank, dim2 % rank
    places = {
        first: add_index(b, along, max(-offset, 0)),
        second: add_index(b, along, max(offset, 0)),
    }
    read = [places[dim] if dim in places else next(rest) for dim in range(rank)]
    return b.expand(leading(state, read_at(b, x, read, rank - 1), state.shape), state.shape)


@lowers("unfold.default", "unfold_copy.default")
def _unfold(state: Lowering, x: Node, dim: int, size: int, step: int) -> Lowered:
    """Windows along `dim`, whose places are a new last dimension."""
    b, rank = state.b, len(x.shape)
    if not rank:
        raise UnsupportedOp("aten.unfold", "a number")
    places = all_indices(b, state.shape)
    inside = places.pop()
    dim %= rank
    places[dim] = add_index(b, mul_index(b, places[dim], step), inside)
    return b.expand(leading(state, read_at(b, x, places, rank + 1), state.shape), state.shape)


@lowers("meshgrid.default", "meshgrid.indexing")
def _meshgrid(state: Lowering, pieces: Sequence[Node], *, indexing: str = "ij") -> Lowered:
    b, rank = state.b, len(pieces)
    order = list(range(rank))
    if indexing == "xy" and rank > 1:
        order[:2] = [1, 0]
    shape = state.shape
    return tuple(
        b.expand(
            b.reshape(piece, tuple(shape[at] if at == dim else ONE for at in range(rank))), shape
        )
        for piece, dim in zip(pieces, order, strict=True)
    )


@lowers("eye.default", "eye.m")
def _eye(state: Lowering, *_: object, **__: object) -> Lowered:
    b = state.b
    shape = state.shape
    return state.cast(b.pointwise("eq", b.iota(shape, 0), b.iota(shape, 1)), state.dtype)


@lowers("tril.default", "triu.default")
def _triangle(state: Lowering, x: Node, diagonal: int = 0) -> Lowered:
    b = state.b
    rank = len(x.shape)
    row, col = b.iota(x.shape, rank - 2), b.iota(x.shape, rank - 1)
    edge = b.pointwise("add", row, diagonal) if diagonal else row
    lower = "tril" in str(getattr(state.call, "target", ""))
    keep = b.pointwise("le" if lower else "ge", col, edge)
    zero: float | int | bool = 0.0 if x.dtype.is_floating_point else 0
    return b.pointwise("where", keep, x, zero)


def flat(state: Lowering, x: Node) -> Node:
    """All elements in one dimension."""
    return state.b.reshape(x, (numel(x.shape),))
