"""How is a pooling over windows that do not overlap a reduction over dimensions of its own?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkernel.agents.coders.compiler.ir import Node
from agentkernel.agents.coders.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr


@lowers("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor: int | None = None,
) -> Lowered:  # fmt: skip
    """The mean of each window; the whole of one that is not padded counts, whatever else is set."""
    windows = _windows(state, kernel)
    if not _side_by_side(windows, stride, padding, ceil_mode):
        return state.library("windows that overlap, or padding")
    total = _over_windows(state, "sum", x, windows, "total")
    mean = state.b.pointwise("div", total, divisor or math.prod(windows), name="mean")
    return state.b.reshape(mean, state.shape)


@lowers("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def _max_pool(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Lowered:  # fmt: skip
    """The largest of each window."""
    windows = _windows(state, kernel)
    apart = any(step != 1 for step in dilation)
    if apart or not _side_by_side(windows, stride, padding, ceil_mode):
        return state.library("windows that overlap, padding or dilation")
    return state.b.reshape(_over_windows(state, "max", x, windows, "largest"), state.shape)


def _over_windows(state: Lowering, op: str, x: Node, windows: Sequence[int], name: str) -> Node:
    """[..., H, W] as [..., H', k, W', k], reduced over the k; what the last whole window leaves
    over is cut off."""
    lead = len(x.shape) - len(windows)
    cut, tiles = x, list(x.shape[:lead])
    for dim, size in enumerate(windows, lead):
        places = state.shape[dim]
        if places * size != x.shape[dim]:
            cut = state.b.slice(cut, dim, to_expr(0), places * size)
        tiles += [places, to_expr(size)]
    tiled = state.b.reshape(cut, tuple(tiles))
    return state.b.reduce(op, tiled, tuple(range(lead + 1, len(tiles), 2)), name)


def _windows(state: Lowering, kernel: Sequence[int]) -> list[int]:
    """The window's size along each dimension that the call in work pools over: aten.max_pool2d
    has two."""
    assert state.call is not None
    spatial = int(str(state.call.target).removesuffix(".default")[-2])
    return _full(kernel, spatial)


def _side_by_side(
    windows: list[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> bool:
    """Does each window begin where the one before it ends, the first one where the input does? So
    it is without a stride."""
    steps = _full(stride or windows, len(windows))
    return steps == windows and not any(padding) and not ceil_mode


def _full(sizes: Sequence[int], spatial: int) -> list[int]:
    """One size a dimension; one size alone stands for all."""
    return list(sizes) * (spatial if len(sizes) == 1 else 1)
