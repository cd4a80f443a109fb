"""A module of two segments, files that a scripted model gives for one of them, and who times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.target import Target
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.search.space import Forms, Schedule, Space

ROWS = '''\
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_kernel(x, scale, out, cols, BLOCK: tl.constexpr):
    """One row a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    factor = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + row * cols + at, mask=inside, other=0.0).to(tl.float32) * factor
    value = tl.where(inside, value, float("-inf"))
    top = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * cols + at, top / tl.sum(top, 0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, scale):
        x, scale = x.contiguous(), scale.contiguous()
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        cols = x.shape[-1]
        if out.numel():
            block = triton.next_power_of_2(cols)
            row_kernel[(out.numel() // cols,)](x, scale, out, cols, BLOCK=block, num_warps=4)
        return out
'''
"""Right for `softmax(x * scale)`."""


def told(source: str) -> str:
    """A model's answer that holds that file."""
    return f"Here it is:\n```python\n{source}```\n"


class Scaled(nn.Module):
    """A softmax, which is a kernel, and its elements in order, which the library finds."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(x * self.scale, -1)
        return y, torch.sort(y, -1)[0]


class TwoResults(Scaled):
    """Two results of one kernel before the library's call."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        y = torch.softmax(x * self.scale, -1)
        return y, y * x, torch.sort(y, -1)[0]


@dataclass
class Clock:
    """A searcher with made-up estimates: of parts `alone`, by a word of the source, else 10."""

    alone: dict[str, float] = field(default_factory=dict)
    timed: list[Space] = field(default_factory=list)

    most_sampled = 0

    def rank(
        self, problem: LoadedProblem, sources: Sequence[str], labels: Sequence[str],
        schedules: Sequence[Schedule], target: Target, forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:  # fmt: skip
        space = Space(problem, tuple(sources), tuple(labels), tuple(schedules))
        return tuple(space.result(at, None, None, 20.0 + at) for at in range(len(sources)))

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        self.timed += spaces
        return tuple(
            tuple(
                space.result(at, None, None, self._us(text))
                for at, text in enumerate(space.sources)
            )
            for space in spaces
        )

    def _us(self, text: str) -> float:
        return next((time_us for word, time_us in self.alone.items() if word in text), 10.0)


WRONG = ROWS.replace("tl.sum(top, 0)", "(tl.sum(top, 0) + 1e-3)")
BROKEN = ROWS.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)")
HANGS = ROWS.replace("        if out.numel():\n", "        while True:\n            pass\n")
CHEATS = ROWS.replace("        return out\n", "        return torch.softmax(x * scale, -1)\n")
READS_OUTSIDE = ROWS.replace("(scale + at, mask=inside, other=0.0)", "(scale + at)")
CLASHES = (
    ROWS.replace("row_kernel", "sort")
    .replace(
        "    def forward(self, x, scale):",
        "    def forward(self, segment, scale):\n        x = segment",
    )
    .replace("@triton.jit", "VERIFIED = triton.next_power_of_2\n\n\n@triton.jit")
    .replace("triton.next_power_of_2(cols)", "VERIFIED(cols)")
)
"""Right, under names that the drop-in has too."""
TWICE = (
    ROWS.replace("scale, out, cols", "scale, out, more, cols")
    .replace(
        "tl.store(",
        "tl.store(more + row * cols + at, given * top / tl.sum(top, 0), mask=inside)\n"
        "    tl.store(",
    )
    .replace("    value = tl.load", "    given = tl.load", 1)
    .replace("to(tl.float32) * factor", "to(tl.float32)\n    value = given * factor")
    .replace("dtype=x.dtype)\n", "dtype=x.dtype)\n        more = torch.empty_like(out)\n")
    .replace("return out", "return out, more")
)
"""Right for the two results of `TwoResults`, which share a kernel."""
