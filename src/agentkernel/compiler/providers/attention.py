"""Attention by the own fused kernel: schedules, and its place in forward."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.attention import (
    AttentionStep,
    attention_facts,
    attention_schedules,
    emit_attention_step,
)
from agentkernel.compiler.attention_splits import emit_any, split_schedules
from agentkernel.compiler.axes import Store
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Setting,
    flop_per_us,
    moved_us,
)


class Attention:
    """Provider of attention with an online softmax."""

    own = True

    def schedules(self, step: AttentionStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles that fit the target's shared memory; of few queries those with the keys split come
        first."""
        facts = attention_facts(step, setting.symbols)
        whole = attention_schedules(facts, setting.target, setting.decision)
        return [*split_schedules(facts, setting.target), *whole]

    def write(
        self, step: AttentionStep, schedule: AnySchedule, forward: Forward,
        outputs: Sequence[Output],
    ) -> None:  # fmt: skip
        """Allocate the result with eager's strides where it is returned, and launch."""
        assert isinstance(schedule, dict)
        given = (output.strides for output in outputs if output.node is step.result)
        store = Store(step.result, next(given, step.strides))
        forward.write_kernel(
            store, schedule, outputs,
            lambda kernel, name: emit_attention_step(
                step, lambda spec: emit_any(spec, schedule), kernel, name, forward.buffers,
                forward.symbols, forward.precision, forward.names,
            ),
        )  # fmt: skip

    def work_us(self, step: AttentionStep, symbols: Symbols) -> float:
        """The multiplications of its two products, or what it moves."""
        facts = attention_facts(step, symbols)
        flops = 4 * facts.heads * facts.queries * facts.keys * facts.head_dim
        moved = moved_us((*step.node.args, step.node), symbols)
        return LAUNCH_US + max(flops / flop_per_us(step.node.dtype), moved)

    def pattern(self, step: AttentionStep) -> str:
        """Always the same."""
        return "attention"
