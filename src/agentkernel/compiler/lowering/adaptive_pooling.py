"""Lowerings of adaptive poolings, whose windows share out each dimension.

Where the output's size divides the input's, windows lie side by side and are a reduction over
dimensions of their own; else they are read at computed places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.utils._sympy.functions import FloorDiv

from agentkernel.compiler.axes import quotient
from agentkernel.compiler.ir import ONE, Expr, Node, UnsupportedOp, compute_dtype, numel, same
from agentkernel.compiler.lowering.index_maps import (
    add_index,
    all_guards,
    all_indices,
    dim_index,
    div_index,
    int_or_expr,
    leading,
    linear_index,
    mul_index,
)
from agentkernel.compiler.lowering.pooling import (
    MAX_RECOMPUTED_OPERATIONS,
    folded,
    wants_places,
    window_element,
)
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers


@lowers("adaptive_avg_pool1d.default", "_adaptive_avg_pool2d.default",
        "_adaptive_avg_pool3d.default", "adaptive_avg_pool2d.default",
        "adaptive_avg_pool3d.default")  # fmt: skip
def _adaptive_avg_pool(state: Lowering, x: Node, _output: object) -> Lowered:
    """The mean of windows that share out each dimension: side by side where the output's size
    divides the input's."""
    sizes = _equal_parts(state, x)
    if sizes is not None:
        total = folded(state, "sum", x, sizes, "total")
        count = state.b.size(numel(sizes), compute_dtype(x.dtype))
        mean = state.b.pointwise("div", total, count, name="mean")
        return state.b.reshape(mean, state.shape)
    return _shared_out(state, x, _shared_sizes(state, x))


def _shared_sizes(state: Lowering, x: Node) -> list[tuple[Expr, Expr]]:
    """The sizes of each dimension of windows, and into how many it is shared out."""
    spatial = int(str(getattr(state.call, "target", "")).split("pool")[1][0])
    lead = len(x.shape) - spatial
    return list(zip(x.shape[lead:], state.shape[lead:], strict=True))


def _equal_parts(state: Lowering, x: Node) -> list[Expr] | None:
    """The size of the windows in each dimension, where they lie side by side in all of them."""
    sizes = [equal_part_size(*pair) for pair in _shared_sizes(state, x)]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def equal_part_size(size: Expr, count: Expr) -> Expr | None:
    """The size of each of `count` parts; None where they are not known to be equal."""
    return size if count == 1 else ONE if same(size, count) else quotient(size, count)


def _shared_out(state: Lowering, x: Node, pairs: Sequence[tuple[Expr, Expr]]) -> Node:
    """The mean from floor(o * I / O) up to ceil((o + 1) * I / O) along each dimension of I that
    becomes one of O."""
    b, rank = state.b, len(x.shape)
    value, _, _, count = _shares(state, "sum", x, pairs)
    total = b.reduce("sum", value, tuple(range(rank, len(value.shape))), "total")
    divisor = state.cast(count, compute_dtype(x.dtype))
    return b.pointwise("div", b.reshape(total, state.shape), divisor, name="mean")


class _Shares(NamedTuple):
    """The elements of windows that share out dimensions, as dimensions behind all others; their
    places in those shared out, which of them there are, and how many a window has."""

    value: Node
    places: Sequence[Node]
    inside: Node | None
    size: Node


def _shares(state: Lowering, op: str, x: Node, pairs: Sequence[tuple[Expr, Expr]]) -> _Shares:
    if not all(output.is_number for _, output in pairs):
        raise UnsupportedOp("aten.adaptive_pool", "a free number of windows")
    b, shape, rank = state.b, state.shape, len(x.shape)
    lead = rank - len(pairs)
    whole = (*shape, *(FloorDiv(size - 1, output) + 2 for size, output in pairs))
    places, guards, count = all_indices(b, whole)[:lead], [], b.constant(1, torch.int64)
    for dim, (size, output) in enumerate(pairs, lead):
        ends = []
        for space in (whole, shape):
            from_here = mul_index(b, dim_index(b, space, dim), size)
            first = div_index(b, "floordiv", from_here, output)
            beyond = div_index(b, "floordiv", add_index(b, from_here, size + output - 1), output)
            ends.append((first, beyond))
        (first, beyond), (ours, end) = ends
        places.append(add_index(b, first, dim_index(b, whole, dim + rank - lead)))
        guards.append(b.pointwise("lt", places[-1], beyond, name="inside"))
        count = mul_index(b, b.pointwise("sub", end, ours, dtype=torch.int64, name="count"), count)
    inside = all_guards(b, guards)
    value = window_element(state, op, x, places, inside, MAX_RECOMPUTED_OPERATIONS)
    return _Shares(b.expand(leading(state, value, whole), whole), places[lead:], inside, count)


@lowers("adaptive_max_pool1d.default", "adaptive_max_pool2d.default",
        "adaptive_max_pool3d.default")  # fmt: skip
def _adaptive_max_pool(state: Lowering, x: Node, _output: object) -> Lowered:
    """The largest of windows that share out each dimension, and where it stood."""
    b, pairs, whole = state.b, _shared_sizes(state, x), _equal_parts(state, x)
    if whole is not None and not wants_places(state):
        largest = b.reshape(folded(state, "max", x, whole, "largest"), state.shape)
        return state.cast(largest, state.dtype), None
    value, places, inside, _ = _shares(state, "max", x, pairs)
    dims = tuple(range(len(x.shape), len(x.shape) + len(pairs)))
    largest = b.reduce("max", value, dims, "largest")
    found = state.cast(b.reshape(largest, state.shape), state.dtype)
    if not wants_places(state):
        return found, None
    own = linear_index(b, places, x.shape[len(x.shape) - len(pairs) :])
    nans = b.pointwise("logical_and", b.pointwise("isnan", value), b.pointwise("isnan", largest))
    best = b.pointwise("logical_or", b.pointwise("eq", value, largest), nans, name="best")
    best = best if inside is None else b.pointwise("logical_and", best, inside)
    none = int_or_expr(numel(x.shape))
    place = b.pointwise("where", best, own, none, dtype=torch.int64, name="candidate")
    return found, b.reshape(b.reduce("min", place, dims, "place"), state.shape)
