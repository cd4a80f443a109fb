"""Lowerings of calls that look something up: buckets of sorted bounds, bags of embeddings, one-hot
vectors."""

from __future__ import annotations

import sympy
import torch

from agentkernel.compiler.axes import quotient
from agentkernel.compiler.ir import ONE, Expr, GraphBuilder, Node, UnsupportedOp, numel
from agentkernel.compiler.lowering.data_movement import WHOLE, gathered
from agentkernel.compiler.lowering.index_maps import (
    all_indices,
    dim_index,
    int_or_expr,
    leading,
    linear_index,
)
from agentkernel.compiler.lowering.pointwise import promoted
from agentkernel.compiler.lowering.reductions import count
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

SUM, MEAN, MAX = 0, 1, 2
"""ATen's codes for the `mode=` of an embedding bag."""
MOST_BOUNDS = 1 << 16
"""Of one search, which reads one bound a step: 17 steps."""


@lowers("bucketize.Tensor")
def _bucketize(
    state: Lowering, x: Node, bounds: Node, *, out_int32: bool = False, right: bool = False
) -> Lowered:
    return _searched(state, bounds, x, right=right)


@lowers("searchsorted.Tensor")
def _searchsorted(
    state: Lowering, bounds: Node, x: Node, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Node | None = None,
) -> Lowered:  # fmt: skip
    if sorter is not None:
        raise UnsupportedOp("aten.searchsorted", "an order of its own")
    return _searched(state, bounds, x, right=right or side == "right")


def _searched(state: Lowering, bounds: Node, x: Node, *, right: bool) -> Node:
    """How many bounds lie below x (or, `right`, not above), by halves: all of the last dimension
    of bounds, in the rows that x has; NaN lies above all."""
    b = state.b
    size = bounds.shape[-1] if bounds.shape else ONE
    if not size.is_number or not 0 < int(size) <= MOST_BOUNDS:
        raise UnsupportedOp("aten.searchsorted", "a free number of bounds")
    stored = b.pointwise("copy", bounds, dtype=bounds.dtype) if bounds.kind == "view" else bounds
    rows = all_indices(b, x.shape)[: len(bounds.shape) - 1]
    place: Node | None = None
    for bit in reversed(range(int(size).bit_length())):
        step = 1 << bit
        last = b.constant(step - 1) if place is None else _int32(b, "add", place, step - 1)
        inside = None if place is None else b.pointwise("lt", last, int(size))
        index = linear_index(b, [*rows, last], bounds.shape) if rows else last
        bound, wanted = promoted(state, b.gather(stored, index, inside), x)
        below = b.pointwise("logical_not", b.pointwise("gt" if right else "ge", bound, wanted))
        if inside is not None:
            below = b.pointwise("logical_and", below, inside)
        on = step if place is None else _int32(b, "add", place, step)
        place = _int32(b, "where", below, on, 0 if place is None else place)
    assert place is not None
    return b.expand(leading(state, place, x.shape), x.shape)


def _int32(b: GraphBuilder, op: str, *operands: Node | int) -> Node:
    return b.pointwise(op, *operands, dtype=torch.int32, name="place")


@lowers("one_hot.default")
def _one_hot(state: Lowering, x: Node, classes: object = -1) -> Lowered:
    b, shape = state.b, state.shape
    if classes == -1:
        raise UnsupportedOp("aten.one_hot", "as many classes as the data say")
    index = b.reshape(state.cast(x, torch.int64), (*x.shape, ONE))
    inside = b.pointwise("within", index, int_or_expr(shape[-1]))
    return state.cast(b.pointwise("eq", inside, dim_index(b, shape, len(x.shape))), torch.int64)


@lowers("embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag.default",
        "_embedding_bag_forward_only.default")  # fmt: skip
def _embedding_bag(
    state: Lowering, weight: Node, indices: Node, offsets: Node, _scaled: bool = False,
    mode: int = SUM, _sparse: bool = False, weights: Node | None = None, _last: bool = False,
    padding: int | None = None,
) -> Lowered:  # fmt: skip
    """Bags of one length, whose offsets are 0, n, 2n, ...: rows that are read and added up at
    once."""
    b = state.b
    assert state.call is not None
    unread = all(user.args[1] == 0 for user in state.call.users)
    length, every = _step_of(offsets), numel(indices.shape)
    bags = None if length is None else every if length == 1 else quotient(every, length)
    plain = weights is None and padding in (None, -1) and unread
    if length is None or bags is None or not plain or indices.dtype not in WHOLE:
        raise UnsupportedOp("aten.embedding_bag", "bags of several lengths, or weights")
    width = weight.shape[1]
    index = b.reshape(indices, (bags, length, ONE))
    read = gathered(state, weight, {0: index}, lambda _: 2, (bags, length, width))
    op = "max" if mode == MAX else "sum"
    found = b.reduce(op, state.compute(read), (1,), "bag")
    if mode == MEAN:
        found = b.pointwise("div", found, count(state, read, (1,)))
    return state.cast(b.reshape(found, (bags, width)), weight.dtype), None, None, None


def _step_of(offsets: Node) -> Expr | None:
    """n of a vector 0, n, 2n, ...; None for any other."""
    while offsets.kind == "pointwise" and offsets.op == "cast":
        (offsets,) = offsets.args
    if offsets.kind == "iota":
        return ONE
    if offsets.kind != "pointwise" or offsets.op != "mul" or offsets.args[0].kind != "iota":
        return None
    step = offsets.args[1]
    if step.kind not in ("constant", "size"):
        return None
    return sympy.sympify(step.attrs[0])
