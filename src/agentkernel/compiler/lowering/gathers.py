"""Reads of a table at computed places: indexing with tensors, embeddings.

What the table is computed from is read at the places; a place past its end is asserted, as eager
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from agentkernel.compiler.ir import ONE, Expr, Node, Shape, broadcast
from agentkernel.compiler.lowering.places import dim_index, int_or_expr, linear_index, read_at
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers
from agentkernel.compiler.lowering.views import leading

WHOLE = (torch.int64, torch.int32)


@lowers("index.Tensor")
def _index(state: Lowering, x: Node, indices: Sequence[Node | None]) -> Lowered:
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    first, last = min(given, default=0), max(given, default=-1)
    together = list(given) == list(range(first, last + 1))
    if not (given and together and _readable(*given.values())):
        return state.library()
    shape = broadcast([index.shape for index in given.values()])
    after = len(x.shape) - last - 1
    places = {
        dim: _spread(state, _nonnegative_index(state, index, x.shape[dim]), shape, after)
        for dim, index in given.items()
    }
    shift = len(shape) - len(given)
    return _gathered(state, x, places, lambda dim: dim if dim < first else dim + shift)


@lowers("embedding.default")
def _embedding(state: Lowering, weight: Node, indices: Node, *_: object, **__: object) -> Lowered:
    if not _readable(indices):
        return state.library()
    places = {0: _spread(state, indices, indices.shape, 1)}
    return _gathered(state, weight, places, lambda dim: dim + len(indices.shape) - 1)


@lowers("index_select.default")
def _index_select(state: Lowering, x: Node, dim: int, index: Node) -> Lowered:
    if not _readable(index) or len(index.shape) != 1 or not x.shape:
        return state.library()
    dim %= len(x.shape)
    places = {dim: _spread(state, index, index.shape, len(x.shape) - dim - 1)}
    return _gathered(state, x, places, lambda other: other)


@lowers("gather.default")
def _gather(state: Lowering, x: Node, dim: int, index: Node, **_: object) -> Lowered:
    if not _readable(index) or not x.shape or len(index.shape) != len(x.shape):
        return state.library()
    return _gathered(state, x, {dim % len(x.shape): index}, lambda other: other)


def _readable(*indices: Node) -> bool:
    """Whether a kernel can read places that are given by these."""
    return all(index.dtype in WHOLE for index in indices)


def _nonnegative_index(state: Lowering, index: Node, size: Expr) -> Node:
    """Indices below zero count from the end."""
    b = state.b
    index = state.cast(index, torch.int64)
    below = b.pointwise("lt", index, 0)
    return b.pointwise("where", below, b.pointwise("add", index, size), index)


def _spread(state: Lowering, index: Node, shape: Shape, after: int) -> Node:
    """`index` over the dimensions of `shape`, with `after` more behind it."""
    index = leading(state, index, shape)
    return state.b.reshape(index, index.shape + (ONE,) * after)


def _gathered(
    state: Lowering, table: Node, places: dict[int, Node], where: Callable[[int], int]
) -> Lowered:
    """The table's elements at `places`, one a dimension, along which the other dimensions are
    walked; `where` says at which dimension of the result one of these stands."""
    b, shape = state.b, state.shape
    read = [
        b.pointwise("within", state.cast(places[dim], torch.int64), int_or_expr(size))
        if dim in places
        else dim_index(b, shape, where(dim))
        for dim, size in enumerate(table.shape)
    ]
    read = [leading(state, place, shape) for place in read]
    found = read_at(b, table, read, len(shape))
    if not all(_reads(found, read[dim]) for dim in places):
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
