"""How is an average pooling over windows that do not overlap a mean over dimensions of its own?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkernel.agents.coders.compiler.ir import Node
from agentkernel.agents.coders.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr


@lowers("avg_pool1d.default")
def _avg_pool1d(state: Lowering, x: Node, *options: object) -> Lowered:
    return _tiled(state, x, 1, *options)  # type: ignore[arg-type]


@lowers("avg_pool2d.default")
def _avg_pool2d(state: Lowering, x: Node, *options: object) -> Lowered:
    return _tiled(state, x, 2, *options)  # type: ignore[arg-type]


@lowers("avg_pool3d.default")
def _avg_pool3d(state: Lowering, x: Node, *options: object) -> Lowered:
    return _tiled(state, x, 3, *options)  # type: ignore[arg-type]


def _tiled(
    state: Lowering, x: Node, spatial: int, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor: int | None = None,
) -> Lowered:  # fmt: skip
    """[..., H, W] as [..., H', k, W', k], the mean over the k; what the last whole window leaves
    over is cut off. Windows that overlap, and padding, stay with the library."""
    windows, steps = _full(kernel, spatial), _full(stride or kernel, spatial)
    if steps != windows or any(padding) or ceil_mode:
        return state.library("windows that overlap, or padding")
    lead = len(x.shape) - spatial
    cut, tiles = x, list(x.shape[:lead])
    for dim, size in enumerate(windows, lead):
        places = state.shape[dim]
        if places * size != x.shape[dim]:
            cut = state.b.slice(cut, dim, to_expr(0), places * size)
        tiles += [places, to_expr(size)]
    tiled = state.b.reshape(state.compute(cut), tuple(tiles))
    total = state.b.reduce("sum", tiled, tuple(range(lead + 1, len(tiles), 2)), "total")
    mean = state.b.pointwise("div", total, divisor or math.prod(windows), name="mean")
    return state.b.reshape(mean, state.shape)


def _full(sizes: Sequence[int], spatial: int) -> list[int]:
    """One size a dimension; one size alone stands for all."""
    return list(sizes) * (spatial if len(sizes) == 1 else 1)
