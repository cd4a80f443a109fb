"""Provider of a step's implementation: its schedules, its text, and what it is expected to cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.ir import Node, numel
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision

AnySchedule = Schedule | dict[str, int]
Decision = Callable[[str], str | None]
"""What a plan says about a key, such as `pointwise.block`; None where it says nothing."""


@dataclass(frozen=True)
class Setting:
    """What the choice of schedules rests on, besides the step itself."""

    symbols: Symbols
    target: Target
    precision: Precision
    decision: Decision
    sampled: int = 0
    """Schedules wanted beyond the best guesses, drawn from all that make sense."""


Served = TypeVar("Served", contravariant=True)


class Provider(Protocol[Served]):
    """Serves one kind of step."""

    @property
    def own(self) -> bool:
        """True where the step becomes a Triton kernel in the drop-in, not a library call."""

    def schedules(self, step: Served, setting: Setting) -> Sequence[AnySchedule]:
        """Schedules, best guess first; none where nothing fits the target."""

    def write(
        self, step: Served, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Write the step into `forward` under one of its schedules."""

    def work_us(self, step: Served, symbols: Symbols) -> float:
        """Its time on an H100 or H200, roughly: what it moves or multiplies, and a launch."""

    def pattern(self, step: Served) -> str:
        """What the step is called in a report."""


BYTES_PER_US = 4e6
"""About the copy bandwidth of an H100 or H200."""
FLOP_PER_US = 1e8
"""About what an fp32-accurate product reaches there (SCHEDULES.md)."""
HALF_FLOP_PER_US = 6.5e8
"""The same of a product of 16-bit operands."""
CONVOLUTION_FLOP_PER_US, HALF_CONVOLUTION_FLOP_PER_US = 2e8, 3.8e8
"""About what a convolution reaches: in TF32 (134 to 235 TFLOP/s on an H200), and of 16-bit floats
(3 x 3 taps of 128 channels)."""
LAUNCH_US = 1.0
"""What a kernel takes at least."""


def product_us(product: Node, symbols: Symbols) -> float:
    """The multiplications of a @ b: two operations for each element of the result and of K."""
    flops = 2 * symbols.hint(numel(product.shape) * product.args[0].shape[-1])
    return flops / flop_per_us(product.dtype)


def flop_per_us(dtype: torch.dtype) -> float:
    """About what a product of operands of `dtype` reaches on an H100 or H200 (SCHEDULES.md)."""
    return HALF_FLOP_PER_US if dtype in (torch.float16, torch.bfloat16) else FLOP_PER_US


def convolution_us(flops: float, dtype: torch.dtype) -> float:
    """The multiplications of a convolution."""
    half = dtype in (torch.float16, torch.bfloat16)
    return flops / (HALF_CONVOLUTION_FLOP_PER_US if half else CONVOLUTION_FLOP_PER_US)


def moved_us(values: Iterable[Node], symbols: Symbols) -> float:
    """What a kernel takes to load or store these values once."""
    moved = sum(symbols.hint(numel(item.shape)) * item.dtype.itemsize for item in values)
    return moved / BYTES_PER_US
