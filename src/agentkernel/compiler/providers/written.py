"""A segment in the words of a model: judged alone, and called as a function of the drop-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.drop_in.written_function import function_of
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.ir import Node, Shape, same
from agentkernel.compiler.providers.protocol import AnySchedule, Setting
from agentkernel.domain.plain_text import plain_line


@dataclass(frozen=True, eq=False)
class WrittenStep:
    """What a file of a model computes. `given` and `made` are the stored values that come in and go
    out, each in its shape there, which may be written otherwise than it is stored."""

    source: str
    model: str
    given: Mapping[Node, Shape]
    made: Mapping[Node, Shape]
    turned: frozenset[Node] = frozenset()
    """Of `made`, those that are returned, and lie, with their dimensions 1 and 2 exchanged."""
    work_us: float = 0.0
    """About what the steps take in whose place it stands."""

    @property
    def reads(self) -> tuple[Node, ...]:
        """The stored values that it is given."""
        return tuple(self.given)

    @property
    def parts(self) -> tuple[Node, ...]:
        """What it stores."""
        return tuple(self.made)


class Written:
    """Provider of functions that a model wrote."""

    own = True

    def schedules(self, step: WrittenStep, setting: Setting) -> Sequence[AnySchedule]:
        """One: the file chooses its own constants."""
        return ({},)

    def write(
        self, step: WrittenStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Place the functions, once for equal segments, and the call. What a library returns may
        lie in any way; it is made contiguous, as what the segment was judged on."""
        if step.source not in forward.written:
            made = function_of(step.source, forward.names)
            forward.pieces.append(f"# Written by the model {plain_line(step.model)}.\n{made.text}")
            forward.kernels += made.kernels
            forward.imports |= made.imports
            forward.written[step.source] = made.name
            forward.schedule[made.name] = {}
        given = []
        for node, shape in step.given.items():
            library = node.root.kind in ("library", "field")
            name = forward.buffers[node] + (".contiguous()" if library else "")
            given.append(_viewed(name, node.shape, shape, forward))
        for node in step.made:
            name = forward.names.unique(forward.result_name(node, outputs))
            forward.buffers[node] = name
        names = ", ".join(forward.buffers[node] for node in step.made)
        forward.lines.append(f"{names} = {forward.written[step.source]}({', '.join(given)})")
        for node, shape in step.made.items():
            name = forward.buffers[node]
            viewed = _viewed(name, shape, node.shape, forward)
            viewed += ".transpose(1, 2)" if node in step.turned else ""
            if viewed != name:
                forward.lines.append(f"{name} = {viewed}")

    def work_us(self, step: WrittenStep, symbols: Symbols) -> float:
        """That of the steps in whose place it stands."""
        return step.work_us

    def pattern(self, step: WrittenStep) -> str:
        """Who wrote it."""
        return f"written by {step.model}"


def _viewed(name: str, lies: Shape, wanted: Shape, forward: Forward) -> str:
    """`name`, contiguous in one shape, in another one."""
    if len(lies) == len(wanted) and all(map(same, lies, wanted)):
        return name
    return f"{name}.view({forward.shape_text(wanted)})"
