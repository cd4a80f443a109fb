"""Convolutions as library calls, their operands and results channels-last where that is asked for.

cuDNN's kernels for tensor cores work on channels-last memory and otherwise rearrange every operand
and result. Where the kernels before and after a convolution read and write that layout themselves,
nothing is rearranged but what comes into the graph and leaves it.
"""

from __future__ import annotations

from agentkernel.compiler.ir import Node
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers, shape_of

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


@lowers(*MOVABLE)
def _convolution(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    assert state.call is not None
    rank = len(x.shape)
    if not state.channels_last or rank != len(shape_of(state.call.meta["val"])):
        return state.library()
    inside = state.b.permute(x, channels_to_last(rank))
    if inside.kind == "view" or inside.kind == "input":
        inside = state.b.pointwise("copy", inside, dtype=x.dtype, name=f"{x.name}_last")
    shape = tuple(state.shape[place] for place in channels_to_last(rank))
    node = state.library_node(inside, shape, CHANNELS_LAST)
    return state.b.permute(node, channels_to_second(rank))
