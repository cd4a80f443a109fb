"""Recurrent layers by kernels of our own that step through time."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols, tensor_text
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.step import FLOATS, operand_text, scope_of
from agentkernel.compiler.providers.protocol import AnySchedule, Setting
from agentkernel.compiler.recurrence import (
    RecurrenceSpec,
    RecurrenceStep,
    TensorNames,
    emit_recurrence,
    recurrence_schedules,
    weight_names,
)

RESULTS = ("output", "last_states", "last_cells")
LAUNCH_US = 3.0
"""From the end of a launch to the end of one without work behind it, in a CUDA graph: what it
stored has to be in the L2, and its first loads come from there. Estimated."""
L2_BYTES_PER_US = 3e6
"""Weights are read from the L2 of an H100 or H200 from the second step on. Estimated."""


class Recurrent:
    """Provider of recurrent layers."""

    own = True

    def schedules(self, step: RecurrenceStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles that fit the target's shared memory."""
        dtype = FLOATS[step.node.dtype]
        return recurrence_schedules(step, dtype, setting.symbols, setting.target, setting.sampled)

    def write(
        self, step: RecurrenceStep, schedule: AnySchedule, forward: Forward,
        outputs: Sequence[Output],
    ) -> None:  # fmt: skip
        """Allocate states and results, and launch once a step."""
        assert isinstance(schedule, dict)
        kernel = forward.names.unique(f"{step.form.cell}_kernel")
        lines: list[str] = []
        names = _names(step, forward, lines)
        steps, batch, units = step.sizes
        symbols = forward.symbols
        spec = RecurrenceSpec(
            kernel, step.form, int(units), symbols.wrapper(steps), symbols.wrapper(batch),
            FLOATS[step.node.dtype], forward.precision, names, step.time_outside,
        )  # fmt: skip
        text = emit_recurrence(spec, schedule)
        forward.place(
            KernelCode(text.source, text.kernels, text.launch, text.helpers, tuple(lines))
        )
        forward.schedule[kernel] = dict(schedule)

    def work_us(self, step: RecurrenceStep, symbols: Symbols) -> float:
        """Launches one behind the other, each of which reads the weights."""
        read_us = step.weight_bytes(symbols) / L2_BYTES_PER_US
        return step.launches(symbols) * (LAUNCH_US + read_us)

    def pattern(self, step: RecurrenceStep) -> str:
        """Always the same."""
        return "recurrence"


def _names(step: RecurrenceStep, forward: Forward, lines: list[str]) -> TensorNames:
    """The wrapper's names of operands and results; `lines` get those that make states, cells and
    results."""
    form, count = step.form, step.form.directions
    scope, wanted = scope_of(forward), weight_names(form)
    given, begin = step.node.args[:count], step.node.args[count : -len(wanted)]
    first, *cells_first = (tensor_text(arg, forward.buffers, forward.symbols) for arg in begin)
    # Views are made once: the launches are many.
    gates = tuple(operand_text(arg, "gates", scope, lines) for arg in given)
    weights = tuple(
        operand_text(arg, name, scope, lines)
        for arg, name in zip(step.node.args[-len(wanted) :], wanted, strict=True)
    )
    device = forward.device
    shape = [forward.symbols.wrapper(size) for size in (step.sizes[1], step.sizes[2])]
    sizes = ", ".join([str(form.slots), *shape])

    def unique(wanted: str) -> str:
        return forward.names.unique(wanted)

    states = unique("states")
    dtype = step.node.dtype
    lines.append(f"{states} = torch.empty((2, {sizes}), device={device}, dtype={dtype})")
    lines.append(f"{states}.copy_({first})")
    cells = unique("cells") if cells_first else ""
    if cells:
        lines.append(f"{cells} = torch.empty(({sizes}), device={device}, dtype=torch.float32)")
        lines.append(f"{cells}.copy_({cells_first[0]})")
    results = ["", "", ""]
    for part in step.parts:
        at = part.attrs[0]
        assert isinstance(at, int)
        results[at] = forward.names.unique(RESULTS[at])
        forward.buffers[part] = results[at]
        lines.append(f"{results[at]} = {forward.empty_text(part, step.strides(part))}")
    output, last, last_cells = results
    return TensorNames(gates, states, cells, output, last, last_cells, weights)
