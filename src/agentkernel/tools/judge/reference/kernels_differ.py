"""Values of which one kernel of torch makes something else than another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.tools.judge.reference.attention import AttentionCalls

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

FP32_MAX = torch.finfo(torch.float32).max


def varies(captured: Captured) -> bool:
    """True where the graph calls what `KernelsDiffer` looks at."""
    names = [str(node.target) for node in captured.graph.graph.nodes]
    return any("scaled_dot_product" in name or "grid_sampler" in name for name in names)


class KernelsDiffer(AttentionCalls):
    """Looks whether what eager makes of its values depends on the kernel that it has at hand, and
    keeps why: attention whose finite queries and keys have scores that fp32 cannot hold (on a CPU
    numbers, elsewhere NaN), and on a CPU a grid with NaN or places past all numbers of pixels (NaN
    or any pixel there, while a GPU takes such a place for one outside of the image)."""

    def __init__(self) -> None:
        super().__init__()
        self.why = ""

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`."""
        if func in (torch.nn.functional.grid_sample, torch.grid_sampler):
            given = dict(zip(("input", "grid"), args, strict=False)) | (kwargs or {})
            grid = given["grid"]
            size = max(1, *given["input"].shape[2:])
            far = min(2.0**30, torch.finfo(grid.dtype).max) / size
            if grid.device.type == "cpu" and not bool((grid.abs() <= far).all()):
                self.why = "places on its grid are no pixels, of which CPU and GPU differ"
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]

    def attend(self, named: Mapping[str, object]) -> None:
        """Look at the scores."""
        both = [cast("torch.Tensor", named[name]) for name in ("query", "key")]
        # Of usual values the largest say so, with no fp64 copy of what may be gigabytes.
        past = both[0].shape[-1] * math.prod(map(largest, both)) > FP32_MAX
        if past and FP32_MAX < math.prod(map(longest_row, both)) < math.inf:
            self.why = "scores of its attention are past the range of fp32"


def largest(value: torch.Tensor) -> float:
    """The largest absolute value."""
    return max(map(abs, map(float, torch.aminmax(value)))) if value.numel() else 0.0


def longest_row(value: torch.Tensor) -> float:
    """The largest norm along the last dimension: the product of two bounds their scores (Cauchy
    and Schwarz)."""
    return float(value.double().norm(dim=-1).max()) if value.numel() else 0.0
