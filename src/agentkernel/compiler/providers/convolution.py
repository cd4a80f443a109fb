"""Convolutions by kernels of our own: schedules, and their place in forward."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.axes import Store, contiguous_strides
from agentkernel.compiler.convolutions.schedules import convolution_schedules
from agentkernel.compiler.convolutions.step import (
    ConvolutionStep,
    convolution_facts,
    emit_convolution_step,
)
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.ir import numel
from agentkernel.compiler.products.step import scope_of
from agentkernel.compiler.providers.protocol import (
    BYTES_PER_US,
    LAUNCH_US,
    AnySchedule,
    Setting,
)

TENSOR_FLOP_PER_US = 2e8
"""About what an own convolution reaches in TF32 (134 to 235 TFLOP/s on an H200)."""


class Convolution:
    """Provider of convolutions with a fused epilogue."""

    own = True

    def schedules(self, step: ConvolutionStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles that fit the target's shared memory."""
        facts = convolution_facts(step, setting.symbols)
        return convolution_schedules(facts, setting.target, setting.sampled)

    def write(
        self, step: ConvolutionStep, schedule: AnySchedule, forward: Forward,
        outputs: Sequence[Output],
    ) -> None:  # fmt: skip
        """Allocate the result and launch the convolution."""
        assert isinstance(schedule, dict)
        store = Store(step.result, contiguous_strides(step.result.shape))
        forward.write_kernel(
            store, schedule, outputs,
            lambda kernel, name: emit_convolution_step(
                step, schedule, kernel, name, scope_of(forward)
            ),
        )  # fmt: skip

    def work_us(self, step: ConvolutionStep, symbols: Symbols) -> float:
        """Its multiplications, or what goes in and out."""
        values = (*step.reads, step.result)
        moved = sum(symbols.hint(numel(item.shape)) * item.dtype.itemsize for item in values)
        flops = step.multiplied(symbols)
        return LAUNCH_US + max(moved / BYTES_PER_US, flops / TENSOR_FLOP_PER_US)

    def pattern(self, step: ConvolutionStep) -> str:
        """With or without an epilogue."""
        return "convolution_epilogue" if step.followers else "convolution"
