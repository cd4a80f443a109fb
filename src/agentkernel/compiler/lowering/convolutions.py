"""Convolutions as calls, on channels-last memory where that is asked for, or as shifted reads.

cuDNN's kernels for tensor cores work on channels-last memory and otherwise rearrange every operand
and result. Where the kernels before and after a convolution read and write that layout themselves,
nothing is rearranged but what comes into the graph and leaves it.

A depthwise convolution of few taps is a sum of weighted elements, as a pooling is one of elements:
what stands before and behind it is computed in the same kernel.
"""

from __future__ import annotations

import itertools
import math

from agentkernel.compiler.ir import ONE, Node
from agentkernel.compiler.lowering.index_maps import (
    all_guards,
    all_indices,
    dim_index,
    mul_index,
)
from agentkernel.compiler.lowering.pooling import WindowAxis, window_element, window_place
from agentkernel.compiler.lowering.registry import (
    Lowered,
    Lowering,
    lowers,
    shape_of,
    tensor_operands,
    to_expr,
)
from agentkernel.compiler.rewrite.patterns import convolution_of

CHANNELS_LAST = "channels_last"
"""Mark of a call whose first operand and whose result lie channels-last: their nodes have the
channels as the last dimension."""

MOVABLE = ("conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding",
           "conv_transpose2d.input", "conv_transpose3d.input")  # fmt: skip
"""Convolutions that may read and write channels-last memory."""


def channels_to_last(rank: int) -> tuple[int, ...]:
    """[N, C, ...] to [N, ..., C]."""
    return (0, *range(2, rank), 1)


def channels_to_second(rank: int) -> tuple[int, ...]:
    """[N, ..., C] to [N, C, ...]."""
    return (0, rank - 1, *range(1, rank - 1))


@lowers(*MOVABLE, "conv1d.default", "conv1d.padding")
def _convolution(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    assert state.call is not None
    if state.convolutions == "written_out" and (total := _weighted_sum(state, x)) is not None:
        return total
    rank = len(x.shape)
    movable = rank > 3 and state.convolutions == "channels_last"
    if not movable or rank != len(shape_of(state.call.meta["val"])):
        return state.library()
    inside = state.b.permute(x, channels_to_last(rank))
    if inside.kind == "view" or inside.kind == "input":
        inside = state.b.pointwise("copy", inside, dtype=x.dtype, name=f"{x.name}_last")
    shape = tuple(state.shape[place] for place in channels_to_last(rank))
    node = state.library_node(inside, shape, CHANNELS_LAST)
    return state.b.permute(node, channels_to_second(rank))


MOST_TAPS = 9
"""Elements of a window that are written out: more are read faster by a kernel of their own, which
keeps them for its neighbours."""


def _weighted_sum(state: Lowering, x: Node) -> Node | None:
    """A depthwise convolution of few taps as a sum of shifted reads; None for any other."""
    assert state.call is not None
    found = convolution_of(state.call)
    if found is None or found.transposed or found.groups != x.shape[1]:
        return None
    outputs = state.shape[1]
    if outputs != x.shape[1] or math.prod(found.kernel) > MOST_TAPS:
        return None
    b, lead = state.b, 2
    windows = [
        WindowAxis(x.shape[dim], state.shape[dim], size, step, before, gap)
        for dim, (size, step, before, gap) in enumerate(
            zip(found.kernel, found.stride, found.before, found.dilation, strict=True), lead
        )
    ]
    outer = all_indices(b, state.shape)[:lead]
    apart: list[list[tuple[int, tuple[Node, Node | None]]]] = []
    for dim, item in enumerate(windows, lead):
        first = mul_index(b, dim_index(b, state.shape, dim), item.stride)
        places = ((tap, window_place(state, item, first, tap)) for tap in range(item.window))
        apart.append([(tap, place) for tap, place in places if place is not None])
    operands = [state.values[item] for item in tensor_operands(state.call)[1:]]
    weight, *bias = (state.compute(item) for item in operands if isinstance(item, Node))
    line = (ONE, outputs, *(ONE,) * len(windows))
    total: Node | None = b.reshape(bias[0], line) if bias else None
    for chosen in itertools.product(*apart):
        guard = all_guards(b, [item for _, (_, item) in chosen if item is not None])
        index = [*outer, *(place for _, (place, _) in chosen)]
        value = window_element(state, "sum", x, index, guard, math.prod(found.kernel))
        factor = weight
        for dim, (tap, _) in enumerate(chosen, lead):
            factor = b.slice(factor, dim, to_expr(tap), ONE)
        term = b.pointwise("mul", value, b.reshape(factor, line), name="term")
        total = term if total is None else b.pointwise("add", total, term, name=b.label)
    return total
