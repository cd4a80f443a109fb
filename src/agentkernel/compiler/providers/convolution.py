"""Convolutions by kernels of our own: schedules, and their place in forward."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.axes import Store, contiguous_strides
from agentkernel.compiler.convolutions.packing import PACKED
from agentkernel.compiler.convolutions.schedules import (
    by_sums,
    convolution_schedules,
    copied,
    first_read,
)
from agentkernel.compiler.convolutions.statistics import (
    StatisticsStep,
    emit_statistics_step,
    statistics_facts,
    statistics_schedules,
)
from agentkernel.compiler.convolutions.step import (
    ConvolutionStep,
    convolution_facts,
    emit_convolution_step,
    multiplied,
)
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.products.step import scope_of
from agentkernel.compiler.providers.product import write_several
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Setting,
    convolution_us,
    moved_us,
)


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
        """Its multiplications, or what goes in and out; before that the copy of the picture, where
        it reads one."""
        flops = multiplied(step.node, step.geometry, symbols)
        moved = moved_us((*step.reads, step.result), symbols)
        work = max(moved, convolution_us(flops, step.node.dtype))
        facts = convolution_facts(step, symbols)
        if by_sums(step.geometry) or first_read(facts) != PACKED:
            return LAUNCH_US + work
        copy = (1 + copied(facts)) * moved_us(step.node.args[:1], symbols)
        return 2 * LAUNCH_US + copy + work

    def pattern(self, step: ConvolutionStep) -> str:
        """With or without an epilogue."""
        return "convolution_epilogue" if step.followers else "convolution"


class ConvolutionStatistics:
    """Provider of convolutions that gather the statistics of their result."""

    own = True

    def schedules(self, step: StatisticsStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles of one part's places, which end with a picture."""
        facts = statistics_facts(step, setting.symbols)
        found = convolution_schedules(facts, setting.target, setting.sampled)
        return statistics_schedules(found)

    def write(
        self, step: StatisticsStep, schedule: AnySchedule, forward: Forward,
        outputs: Sequence[Output],
    ) -> None:  # fmt: skip
        """Allocate the result and the parts, and launch the convolution."""
        assert isinstance(schedule, dict)
        wanted = {Store(part, contiguous_strides(part.shape)): part.name for part in step.parts}
        write_several(step, wanted, schedule, forward, emit_statistics_step)

    def work_us(self, step: StatisticsStep, symbols: Symbols) -> float:
        """The convolution's, and the parts."""
        parts = moved_us(step.parts[1:], symbols)
        return Convolution().work_us(step.anchor, symbols) + parts

    def pattern(self, step: StatisticsStep) -> str:
        """Always the same."""
        return "convolution_statistics"
