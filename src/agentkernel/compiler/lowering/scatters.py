"""Lowerings of additive scatters: values added to what an index names, one element a lane.

Floats are added in fp32, as their sum in 16 bits would be rounded once an element; such a result is
rounded once, at its end. In which order elements of one place are added is open, as in eager's
kernels for GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy
import torch

from agentkernel.compiler.ir import Node, Shape, UnsupportedOp, compute_dtype, same
from agentkernel.compiler.lowering.data_movement import decoded, readable, spread
from agentkernel.compiler.lowering.index_maps import (
    dim_index,
    int_or_expr,
    leading,
    linear_index,
)
from agentkernel.compiler.lowering.registry import OF_PLACES, Lowered, Lowering, lowers

ADDED = (torch.float32, torch.int32, torch.int64)
"""What atomics of Triton add exactly as eager does, or as its order of additions may."""


@lowers("index_add.default")
def _index_add(
    state: Lowering, x: Node, dim: int, index: Node, source: Node, *, alpha: float = 1
) -> Lowered:
    if len(index.shape) != 1 or not x.shape or len(source.shape) != len(x.shape):
        raise UnsupportedOp("aten.index_add", "an index that is no vector, or a number")
    dim %= len(x.shape)
    _require_equal(source.shape, (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]))
    place = spread(state, index, index.shape, len(x.shape) - dim - 1)
    if alpha != 1:
        kind = compute_dtype(state.dtype)
        factor = float(alpha) if kind.is_floating_point else int(alpha)
        source = state.b.pointwise("mul", state.cast(source, kind), factor, dtype=kind)
    return _added(state, x, {dim: place}, source)


@lowers("scatter_add.default")
def _scatter_add(state: Lowering, x: Node, dim: int, index: Node, source: Node) -> Lowered:
    """Eager takes of `source` what lies at the places of `index`."""
    whole = len(index.shape) == len(source.shape) == len(x.shape) != 0
    if not whole or not all(map(same, index.shape, source.shape)):
        raise UnsupportedOp("aten.scatter_add", "an index that covers a part, or a number")
    return _added(state, x, {dim % len(x.shape): index}, source)


@lowers("scatter_reduce.two")
def _scatter_reduce(
    state: Lowering, x: Node, dim: int, index: Node, source: Node, reduce: str, *,
    include_self: bool = True,
) -> Lowered:  # fmt: skip
    if reduce != "sum" or not include_self:
        raise UnsupportedOp("aten.scatter_reduce", "another reduction than a sum")
    return _scatter_add(state, x, dim, index, source)


@lowers("index_put.default")
def _index_put(
    state: Lowering, x: Node, indices: Sequence[Node | None], values: Node,
    accumulate: bool = False,
) -> Lowered:  # fmt: skip
    """Of adjacent dimensions; indices below zero count from the end."""
    if not accumulate:
        raise UnsupportedOp("aten.index_put", "no sum")
    found = decoded(state, x, indices, "aten.index_put")
    behind = x.shape[found.first + len(found.places) :]
    whole = (*x.shape[: found.first], *found.shape, *behind)
    values = leading(state, values, whole)
    _require_equal(
        [size for size in values.shape if size != 1],
        [size for size, own in zip(whole, values.shape, strict=True) if own != 1],
    )
    values = state.b.expand(values, whole)
    return _added(state, x, found.places, values, found.shift)


def _require_equal(sizes: Sequence[sympy.Expr], wanted: Sequence[sympy.Expr]) -> None:
    """Raise UnsupportedOp for sizes that eager compares in each call: of free ones that are two
    symbols the drop-in would not."""
    if len(sizes) != len(wanted) or not all(map(same, sizes, wanted)):
        raise UnsupportedOp("aten.index_add", "sizes that only a call says to be equal")


def _added(state: Lowering, x: Node, places: dict[int, Node], source: Node, shift: int = 0) -> Node:
    """`x` with the elements of `source` added at `places`, one a dimension of x, along whose other
    dimensions both are walked; those behind the places stand `shift` later in `source`."""
    b, shape = state.b, source.shape
    assert state.call is not None
    kind = compute_dtype(state.dtype)
    plain = state.call.meta["val"].is_contiguous()
    if not readable(*places.values()) or kind not in ADDED or not plain or not shape:
        raise UnsupportedOp(str(state.call.target), "a type that atomics do not add, or strides")
    index = linear_index(b, _everywhere(state, places, x.shape, shape, shift), x.shape, single=True)
    base = None if _is_zero(x) else _begun(state, x, kind)
    total = b.scatter(index, state.cast(source, kind), x.shape, base)
    return state.cast(total, state.dtype)


def _everywhere(
    state: Lowering, places: dict[int, Node], table: Shape, shape: Shape, shift: int
) -> list[Node]:
    """For each dimension of `table` the asserted place of every element of `shape`."""
    b, found = state.b, []
    for dim, size in enumerate(table):
        if dim in places:
            place = state.cast(places[dim], torch.int64)
            # A node of its own: of one that scatters share, one kernel would store it for the next.
            within = replace(b.pointwise("within", place, int_or_expr(size)))
            found.append(leading(state, within, shape))
        else:
            found.append(dim_index(b, shape, dim if dim < min(places) else dim + shift))
    return found


def _is_zero(x: Node) -> bool:
    root = x.root
    return root.kind == "constant" and root.attrs[0] == 0


def _begun(state: Lowering, x: Node, kind: torch.dtype) -> Node:
    """`x` as something stored whole, in the type that is added in."""
    x = state.cast(x, kind)
    if x.kind == "view" or x.root.kind in OF_PLACES:
        return state.b.pointwise("copy", x, dtype=kind)
    return x
