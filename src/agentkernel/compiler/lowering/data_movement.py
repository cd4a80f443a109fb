"""Lowerings of cat, pad, slice, roll, flip, scatter, upsample, indexing and embeddings.

Each is read in place by the kernel that needs it: a choice by index, and loads that are masked
where the choice falls on something else. What a table is computed from is read at the indices; an
index past its end is asserted, as eager raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import sympy
import torch

from agentkernel.compiler.expressions import symbols_of
from agentkernel.compiler.ir import (
    ONE,
    Expr,
    GraphBuilder,
    Node,
    Shape,
    UnsupportedOp,
    broadcast,
    compute_dtype,
    of_places,
    same,
)
from agentkernel.compiler.lowering.index_maps import (
    MAX_OPERATIONS,
    add_index,
    all_guards,
    all_indices,
    dim_index,
    int_or_expr,
    leading,
    linear_index,
    moves,
    mul_index,
    read_at,
)
from agentkernel.compiler.lowering.products import slice_at
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr

MOST_REPEATED = 4
"""Operations that are computed again at places that several neighbours read."""
WHOLE = (torch.int64, torch.int32)


@lowers("index.Tensor")
def _index(state: Lowering, x: Node, indices: Sequence[Node | None]) -> Lowered:
    found = decoded(state, x, indices, "aten.index")
    return gathered(state, x, found.places, found.where, state.shape, checked=found.checked)


class Indexed(NamedTuple):
    """What an expression like x[:, i, j] names: the place in each dimension that has an index, of
    dimensions next to each other, spread over the `shape` that stands for these in the result."""

    places: dict[int, Node]
    shape: Shape
    checked: bool
    """Whether a place may lie outside."""

    @property
    def first(self) -> int:
        """The first dimension with an index."""
        return min(self.places)

    @property
    def shift(self) -> int:
        """How much later a dimension behind them stands in the result."""
        return len(self.shape) - len(self.places)

    def where(self, dim: int) -> int:
        """Where another dimension stands in the result."""
        return dim if dim < self.first else dim + self.shift


def decoded(state: Lowering, x: Node, indices: Sequence[Node | None], op: str) -> Indexed:
    """The places that `indices` give in x; those below zero count from the end. Raises
    UnsupportedOp, of the operator `op`, for dimensions apart from each other and for masks."""
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    together = list(given) == list(range(min(given, default=0), max(given, default=-1) + 1))
    if not (given and together and readable(*given.values())):
        raise UnsupportedOp(op, "indices apart from each other, or a mask")
    shape = broadcast([index.shape for index in given.values()])
    after = len(x.shape) - max(given) - 1
    checked = not (state.depth and all(map(_worked_out, given.values())))
    places = {
        dim: spread(
            state,
            nonnegative_index(state, index, x.shape[dim]) if checked else index,
            shape,
            after,
        )
        for dim, index in given.items()
    }
    return Indexed(places, shape, checked)


@lowers("embedding.default")
def _embedding(state: Lowering, weight: Node, indices: Node, *_: object, **__: object) -> Lowered:
    if not readable(indices):
        raise UnsupportedOp("aten.embedding", "indices of narrow integers")
    places = {0: spread(state, indices, indices.shape, 1)}
    after = len(indices.shape) - 1
    return gathered(state, weight, places, lambda dim: dim + after, state.shape)


@lowers("index_select.default")
def _index_select(state: Lowering, x: Node, dim: int, index: Node) -> Lowered:
    if not readable(index) or len(index.shape) != 1 or not x.shape:
        raise UnsupportedOp("aten.index_select", "an index that is no vector, or a number")
    dim %= len(x.shape)
    places = {dim: spread(state, index, index.shape, len(x.shape) - dim - 1)}
    return gathered(state, x, places, lambda other: other, state.shape)


@lowers("gather.default")
def _gather(state: Lowering, x: Node, dim: int, index: Node, **_: object) -> Lowered:
    if not readable(index) or not x.shape or len(index.shape) != len(x.shape):
        raise UnsupportedOp("aten.gather", "indices of narrow integers, or a number")
    return gathered(state, x, {dim % len(x.shape): index}, lambda other: other, state.shape)


def _worked_out(index: Node) -> bool:
    """True for an index that follows from places and floats: within a decomposition of PyTorch it
    is one that the table has."""
    waiting = [index]
    while waiting:
        node = waiting.pop()
        if node.kind in ("input", "library", "field", "reduce", "scan"):
            if not node.dtype.is_floating_point:
                return False
        else:
            waiting += node.args
    return True


def readable(*indices: Node) -> bool:
    """Whether a kernel can read places that are given by these."""
    return all(index.dtype in WHOLE for index in indices)


def nonnegative_index(state: Lowering, index: Node, size: Expr) -> Node:
    """Indices below zero count from the end."""
    b = state.b
    index = state.cast(index, torch.int64)
    below = b.pointwise("lt", index, 0)
    return b.pointwise("where", below, b.pointwise("add", index, size), index)


def spread(state: Lowering, index: Node, shape: Shape, after: int) -> Node:
    """`index` over the dimensions of `shape`, with `after` more behind it."""
    index = leading(state, index, shape)
    return state.b.reshape(index, index.shape + (ONE,) * after)


def gathered(
    state: Lowering, table: Node, places: dict[int, Node], where: Callable[[int], int],
    shape: Shape, *, checked: bool = True,
) -> Node:  # fmt: skip
    """The table's elements at `places`, one a dimension, along which the other dimensions are
    walked; `where` says at which dimension of the result, which has `shape`, one of these stands.
    Not `checked`, no place lies outside."""
    b = state.b
    read = [dim_index(b, shape, where(dim)) for dim in range(len(table.shape)) if dim not in places]
    for dim in sorted(places):
        place = state.cast(places[dim], torch.int64)
        if checked:
            place = b.pointwise("within", place, int_or_expr(table.shape[dim]))
        read.insert(dim, place)
    read = [leading(state, place, shape) for place in read]
    found = read_at(b, table, read, len(shape), most=MAX_OPERATIONS if checked else MOST_REPEATED)
    if checked and not all(_reads(found, read[dim]) for dim in places):
        # Along a dimension that is broadcast no place is read, and none would be asserted.
        stored = b.pointwise("copy", table, dtype=table.dtype) if table.kind == "view" else table
        found = b.gather(stored, linear_index(b, read, table.shape, single=True))
    return b.expand(leading(state, found, shape), shape)


def _reads(value: Node, place: Node) -> bool:
    """Whether `place` is among what `value` is computed from."""
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += node.operands
    return place in seen


@lowers("cat.default", "concat.default", "concatenate.default")
def _cat(state: Lowering, pieces: Sequence[Node], dim: int = 0) -> Lowered:
    rank = len(state.shape)
    same_rank = [piece for piece in pieces if len(piece.shape) == rank]  # an empty vector may join
    return joined(state, same_rank, dim % max(rank, 1), state.shape)


@lowers("stack.default")
def _stack(state: Lowering, pieces: Sequence[Node], dim: int = 0) -> Lowered:
    dim %= len(state.shape)
    thin = (
        state.b.reshape(piece, (*piece.shape[:dim], ONE, *piece.shape[dim:])) for piece in pieces
    )
    return joined(state, list(thin), dim, state.shape)


def joined(state: Lowering, pieces: Sequence[Node], dim: int, shape: Shape) -> Node:
    """The pieces behind each other along `dim`, which makes `shape`."""
    b = state.b
    place = dim_index(b, shape, dim)
    parts: list[tuple[Node, Node]] = []
    start: Expr = sympy.Integer(0)
    inside = [piece for piece in pieces if piece.shape[dim] != 0] or list(pieces[:1])
    for index, piece in enumerate(inside):
        end = start + piece.shape[dim]
        before, after = (
            b.pointwise("lt", place, int_or_expr(end)),
            b.pointwise("ge", place, int_or_expr(start)),
        )
        guard = before if index == 0 else after
        if 0 < index < len(inside) - 1:
            guard = b.pointwise("logical_and", after, before)
        places = all_indices(b, shape)
        places[dim] = add_index(b, place, -start)
        only = None if len(inside) == 1 else guard
        value = read_at(b, state.cast(piece, state.dtype), places, len(shape), only)
        parts.append((before, value))
        start = end
    result = parts[-1][1]
    for before, value in reversed(parts[:-1]):
        result = _chosen(state, before, value, result)
    return b.expand(leading(state, result, shape), shape)


def _chosen(state: Lowering, condition: Node, x: Node, y: Node) -> Node:
    return state.b.pointwise("where", condition, x, y, dtype=compute_dtype(state.dtype))


def _whole(state: Lowering, value: Node) -> Node:
    """`value` in the shape of the result, where it does not vary along some of it."""
    return state.b.expand(leading(state, value, state.shape), state.shape)


@lowers("constant_pad_nd.default", "pad.default")
def _pad(
    state: Lowering, x: Node, pad: Sequence[object], *rest: object, value: object = None
) -> Lowered:
    mode, fill = "constant", value
    for item in rest:
        if isinstance(item, str):
            mode = item
        else:
            fill = item
    before = _before(x, pad)
    if mode != "constant":
        return _padded_from_itself(state, x, before, mode)
    b, shape = state.b, state.shape
    places = all_indices(b, shape)
    within: list[Node] = []
    for dim, first in before.items():
        if first == 0 and x.shape[dim] == shape[dim]:
            continue
        if shape[dim] == 1:
            raise UnsupportedOp("aten.constant_pad_nd", "a dimension that is cut down to one place")
        if first != 0:
            within.append(b.pointwise("ge", places[dim], int_or_expr(first)))
        if first + x.shape[dim] != shape[dim]:
            within.append(b.pointwise("lt", places[dim], int_or_expr(first + x.shape[dim])))
        places[dim] = add_index(b, places[dim], -first)
    held = all_guards(b, within)
    found = read_at(b, x, places, len(shape), held)
    if held is None:
        return _whole(state, found)
    filled = fill if isinstance(fill, int | float) else 0
    made = torch.tensor(filled).to(state.dtype).item()
    return _whole(state, _chosen(state, held, found, b.constant(made, compute_dtype(state.dtype))))


@lowers(*(f"{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3)))
def _pad_from_itself(state: Lowering, x: Node, pad: Sequence[object]) -> Lowered:
    mode = "reflect" if "reflection" in str(getattr(state.call, "target", "")) else "replicate"
    return _padded_from_itself(state, x, _before(x, pad), mode)


def _before(x: Node, pad: Sequence[object]) -> dict[int, Expr]:
    """Dimension -> the places that are put before it; the last dimension is named first."""
    count = len(pad) // 2
    return {len(x.shape) - 1 - item: to_expr(pad[2 * item]) for item in range(count)}


def _padded_from_itself(state: Lowering, x: Node, before: dict[int, Expr], mode: str) -> Lowered:
    """Places outside are those that they are mirrored to, the nearest ones, or those of the next
    period."""
    b = state.b
    places = all_indices(b, state.shape)
    for dim, first in before.items():
        size = x.shape[dim]
        if first == 0 and size == state.shape[dim]:
            continue
        if state.shape[dim] == 1:
            raise UnsupportedOp("aten.pad", "a dimension that is cut down to one place")
        place, last = add_index(b, places[dim], -first), size - 1
        if mode == "reflect":
            far = b.pointwise(
                "sub", int_or_expr(last), b.pointwise("abs", place), dtype=torch.int64
            )
            mirrored = b.pointwise("abs", far, dtype=torch.int64)
            place = b.pointwise("sub", int_or_expr(last), mirrored, dtype=torch.int64)
        elif mode == "replicate":
            low = b.pointwise("maximum", place, 0, dtype=torch.int64)
            place = b.pointwise("minimum", low, int_or_expr(last), dtype=torch.int64)
        elif mode == "circular":
            shifted = add_index(b, place, size)
            place = b.pointwise("mod", shifted, int_or_expr(size), dtype=torch.int64)
        else:
            raise UnsupportedOp("aten.pad", f"mode {mode!r}")
        places[dim] = place
    return _whole(state, read_at(b, x, places, len(state.shape)))


@lowers("flip.default")
def _flip(state: Lowering, x: Node, dims: Sequence[int]) -> Lowered:
    b = state.b
    places = all_indices(b, x.shape)
    for dim in {item % max(len(x.shape), 1) for item in dims} if x.shape else ():
        last = int_or_expr(x.shape[dim] - 1)
        places[dim] = b.pointwise("sub", last, places[dim], dtype=torch.int64)
    return _whole(state, read_at(b, x, places, len(x.shape)))


@lowers("roll.default")
def _roll(state: Lowering, x: Node, shifts: Sequence[object], dims: Sequence[int] = ()) -> Lowered:
    b = state.b
    flat = x if dims else b.reshape(x, (sympy.Mul(*x.shape),))
    by: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        place = dim % len(flat.shape)
        by[place] = by.get(place, sympy.Integer(0)) + to_expr(shift)
    places = all_indices(b, flat.shape)
    for dim, shift in by.items():
        size = flat.shape[dim]
        if size == 1:
            continue
        # sympy's Mod has the sign of the divisor, as a place has.
        first = sympy.Mod(shift, size)
        if not first.is_number:
            places[dim] = _shifted_index(b, places[dim], shift, size)
            continue
        if first == 0:
            continue
        rolled = b.pointwise("lt", places[dim], int_or_expr(first))
        back, on = add_index(b, places[dim], size - first), add_index(b, places[dim], -first)
        places[dim] = b.pointwise("where", rolled, back, on, dtype=torch.int64)
    found = b.expand(read_at(b, flat, places, len(flat.shape)), flat.shape)
    return found if dims else b.reshape(found, state.shape)


def _shifted_index(b: GraphBuilder, place: Node, shift: Expr, size: Expr) -> Node:
    """(place - shift) mod size, for a shift that may be more than the free size. Kernels have the
    remainder of numbers that are not negative alone, so a shift to the right is one of the places
    counted from the end."""
    if shift.is_nonpositive:
        on = add_index(b, place, int_or_expr(-shift))
        return b.pointwise("mod", on, int_or_expr(size), dtype=torch.int64)
    if not shift.is_nonnegative:
        raise UnsupportedOp("aten.roll", "by a number of places of either sign")
    last = int_or_expr(size - 1)
    on = add_index(b, b.pointwise("sub", last, place, dtype=torch.int64), int_or_expr(shift))
    wrapped = b.pointwise("mod", on, int_or_expr(size), dtype=torch.int64)
    return b.pointwise("sub", last, wrapped, dtype=torch.int64)


@lowers("slice.Tensor")
def _slice(
    state: Lowering,
    x: Node,
    dim: int = 0,
    start: object = None,
    end: object = None,
    step: int = 1,
) -> Lowered:
    dim %= len(x.shape)
    first = to_expr(start or 0)
    if first.is_negative:
        first = x.shape[dim] + first
        # Where capture saw a start before the first element, a guard holds all sizes to that.
        if symbols_of(state.captured).hint(first) < 0:
            first = sympy.Integer(0)
    length = state.shape[dim]
    if length == x.shape[dim] and step == 1:
        return x
    moved = x.kind == "pointwise" and moves(x) and state.readers(x) == [state.call]
    if moved or x.root.kind == "constant" or of_places(x.root, math.inf):
        # Stored nowhere, so that there is nothing to cut: it is worked out at the places asked.
        places = all_indices(state.b, state.shape)
        places[dim] = add_index(state.b, mul_index(state.b, places[dim], step), first)
        return _whole(state, read_at(state.b, x, places, len(places)))
    if length == 1 and first.is_number:
        return slice_at(state.b, x, dim, int(first))
    return state.b.slice(x, dim, first, length, step)


@lowers("slice_scatter.default")
def _slice_scatter(
    state: Lowering, x: Node, source: Node, dim: int = 0, start: object = None,
    end: object = None, step: int = 1,
) -> Lowered:  # fmt: skip
    """`source` wherever the index along `dim` is one of the slice, else `x`."""
    b, shape = state.b, state.shape
    dim %= len(shape)
    first, count = to_expr(start or 0), source.shape[dim]
    if first.is_negative:
        first = sympy.Max(first + shape[dim], 0)
    if count == 0 or same(count, shape[dim]):
        return state.cast(x if count == 0 else source, state.dtype)
    place = dim_index(b, shape, dim)
    on, within = add_index(b, place, -first), []
    if first != 0:
        within.append(b.pointwise("ge", place, int_or_expr(first)))
    if first + (count - 1) * step + 1 != shape[dim]:
        within.append(b.pointwise("lt", place, int_or_expr(first + (count - 1) * step + 1)))
    if step != 1:
        within.append(b.pointwise("eq", b.pointwise("mod", on, step, dtype=torch.int64), 0))
        on = b.pointwise("floordiv", on, step, dtype=torch.int64)
    held = all_guards(b, within)
    assert held is not None
    places = all_indices(b, shape)
    places[dim] = on
    found = read_at(b, state.cast(source, state.dtype), places, len(shape), held)
    return _whole(state, _chosen(state, held, found, x))


@lowers("select_scatter.default")
def _select_scatter(state: Lowering, x: Node, source: Node, dim: int, index: object) -> Lowered:
    b, shape = state.b, state.shape
    dim %= len(shape)
    chosen = to_expr(index)
    if chosen.is_negative:
        chosen = chosen + shape[dim]
    thin = b.reshape(source, (*source.shape[:dim], ONE, *source.shape[dim:]))
    if shape[dim] == 1:
        return state.cast(thin, state.dtype)
    held = b.pointwise("eq", dim_index(b, shape, dim), int_or_expr(chosen))
    return _whole(state, _chosen(state, held, state.cast(thin, state.dtype), x))


@lowers("copy.default")
def _copy(state: Lowering, x: Node, source: Node, *_: object) -> Lowered:
    return _whole(state, state.cast(source, state.dtype))


@lowers("repeat.default")
def _repeat(state: Lowering, x: Node, repeats: Sequence[object]) -> Lowered:
    b = state.b
    x = leading(state, x, (ONE,) * len(repeats))
    before = [size for item in x.shape for size in (ONE, item)]
    after = [
        size
        for item, count in zip(x.shape, repeats, strict=True)
        for size in (to_expr(count), item)
    ]
    return b.reshape(b.expand(b.reshape(x, tuple(before)), tuple(after)), state.shape)


NEAREST = [f"upsample_nearest{n}d" for n in (1, 2, 3)]


@lowers(*(f"{name}.{kind}" for name in NEAREST for kind in ("default", "vec")))
def _upsample_nearest(
    state: Lowering, x: Node, _size: object, *scales: object, **named: object
) -> Lowered:
    """Each element as often as its dimension grows where that is a power of two; else the element
    at floor(index * ratio), worked out in fp32 as eager does."""
    b, shape = state.b, state.shape
    given = [item for each in (*scales, *named.values()) for item in _numbers(each)]
    ratios = [sympy.cancel(old / new) for old, new in zip(x.shape, shape, strict=True)]
    if not all(ratio.is_number for ratio in ratios):
        raise UnsupportedOp("aten.upsample_nearest", "a scale that depends on a free size")
    if any(float(ratio) != 1.0 / scale for ratio, scale in zip(ratios[2:], given, strict=False)):
        raise UnsupportedOp("aten.upsample_nearest", "a scale that is not the ratio of the sizes")
    factors = [1 / ratio for ratio in ratios]
    if all(f.is_Integer and int(f).bit_count() == 1 for f in factors):
        before = [size for item in x.shape for size in (item, ONE)]
        after = [size for pair in zip(x.shape, factors, strict=True) for size in pair]
        return b.reshape(b.expand(b.reshape(x, tuple(before)), tuple(after)), shape)
    places = all_indices(b, shape)
    for dim, ratio in enumerate(ratios):
        if ratio != 1 and shape[dim] != 1:
            index = state.cast(places[dim], torch.float32)
            scaled = b.pointwise("floor", b.pointwise("mul", index, float(ratio)))
            place = state.cast(scaled, torch.int64)
            places[dim] = b.pointwise(
                "minimum", place, int_or_expr(x.shape[dim] - 1), dtype=torch.int64
            )
    return _whole(state, read_at(b, x, places, len(shape)))


LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


@lowers(*(f"{name}.{kind}" for name in LINEAR for kind in ("default", "vec")))
def _upsample_linear(
    state: Lowering, x: Node, _size: object, align_corners: bool, *scales: object, **named: object
) -> Lowered:
    """Weighted means of neighbours, the last dimension first, in eager's order of operations: of
    infinities differences would make NaN where eager's weights make none. Between equal sizes it
    is a copy, as in PyTorch's kernels for GPUs (UpSampleBilinear2d.cu)."""
    b, shape, kind = state.b, state.shape, compute_dtype(state.dtype)
    if not kind.is_floating_point:
        raise UnsupportedOp("aten.upsample", "integers, which it rounds")
    given = [item for each in (*scales, *named.values()) for item in _numbers(each)]
    grown = [dim for dim in range(2, len(shape)) if not same(x.shape[dim], shape[dim])]
    for dim, scale in zip(range(2, len(shape)), given, strict=False):
        ratio = sympy.cancel(shape[dim] / x.shape[dim])
        if not ratio.is_number or float(ratio) != scale:
            raise UnsupportedOp("aten.upsample", "a scale that is not the ratio of the sizes")
    if not grown:
        return state.cast(x, state.dtype)
    axes = {dim: _neighbours(state, dim, x.shape[dim], align_corners, kind) for dim in grown}
    places = all_indices(b, shape)

    def blended(dims: list[int]) -> Node:
        if not dims:
            return state.cast(read_at(b, x, list(places), len(shape)), kind)
        dim, *inner = dims
        low, high, weight = axes[dim]
        own, places[dim] = places[dim], low
        first = blended(inner)
        places[dim] = high
        second = blended(inner)
        places[dim] = own
        rest = b.pointwise("sub", 1.0, weight, dtype=kind)
        return b.pointwise(
            "add", b.pointwise("mul", rest, first), b.pointwise("mul", weight, second)
        )

    found = blended(grown)
    free = [dim for dim in grown if (x.shape[dim] - shape[dim]).free_symbols]
    if len(free) == len(grown):
        equal = [
            b.pointwise("eq", int_or_expr(x.shape[dim]), int_or_expr(shape[dim])) for dim in free
        ]
        held = all_guards(b, equal)
        assert held is not None
        copied = read_at(b, x, places, len(shape), held)
        found = b.pointwise("where", held, state.cast(copied, kind), found)
    return _whole(state, state.cast(found, state.dtype))


def _neighbours(
    state: Lowering, dim: int, old: sympy.Expr, align_corners: bool, kind: torch.dtype
) -> tuple[Node, Node, Node]:
    """Of each place along `dim` the two that it lies between, and the weight of the second,
    worked out as in eager (area_pixel_compute_source_index in UpSample.h)."""
    b, new = state.b, state.shape[dim]
    place = state.cast(dim_index(b, state.shape, dim), kind)

    def quotient(left: sympy.Expr, right: sympy.Expr) -> Node | float:
        if not (left.free_symbols or right.free_symbols):
            return float(left) / float(right)
        return b.pointwise("div", int_or_expr(left), int_or_expr(right), dtype=kind)

    if align_corners:
        step = quotient(old - 1, sympy.Max(new - 1, 1))
        source = b.pointwise("mul", place, step)
    else:
        centre = b.pointwise("mul", b.pointwise("add", place, 0.5), quotient(old, new))
        source = b.pointwise("maximum", b.pointwise("sub", centre, 0.5), 0.0)
    low = state.cast(source, torch.int64)
    last = int_or_expr(old - 1)
    low = b.pointwise("minimum", low, last, dtype=torch.int64)
    high = b.pointwise("minimum", add_index(b, low, sympy.Integer(1)), last, dtype=torch.int64)
    weight = b.pointwise("sub", source, state.cast(low, kind))
    weight = b.pointwise("minimum", b.pointwise("maximum", weight, 0.0), 1.0)
    return low, high, weight


def _numbers(value: object) -> Sequence[float]:
    listed = value if isinstance(value, list | tuple) else [value]
    return [float(item) for item in listed if isinstance(item, int | float)]
