"""What the calls of one candidate have shown together: values, writes to inputs, races."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from agentkernel.domain.verdict import InputsChanged, RaceFound
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.comparison.compare import reply_strings
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.sandbox.protocol import JSON


class Observations:
    """`truths` has the values that were right of each output of truth values."""

    def __init__(self) -> None:
        self.truths: dict[int, set[bool]] = {}
        self.races: list[str] = []
        self._spans: dict[int, tuple[float, float]] = {}
        self._wrote: dict[str, InputsChanged] = {}
        self._touched: set[str] = set()

    def note_values(self, leaves: Sequence[object]) -> None:
        """The values that were right in one call: those of truth values, the span of others."""
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor) or not leaf.numel():
                continue
            if leaf.dtype == torch.bool:
                self.truths.setdefault(index, set()).update((bool(leaf.any()), bool(leaf.all())))
            elif leaf.dtype.is_floating_point and not self._varies(index):
                self._note_span(index, *(float(end) for end in torch.aminmax(leaf.detach())))

    def _note_span(self, index: int, low: float, high: float) -> None:
        if math.isfinite(low) and math.isfinite(high):
            least, most = self._spans.get(index, (low, high))
            self._spans[index] = (min(low, least), max(high, most))

    def _varies(self, index: int) -> bool:
        low, high = self._spans.get(index, (0.0, 0.0))
        return low < high

    def note_writes(
        self, case: Case, reference_case: ReferenceCase, reply: Mapping[str, JSON]
    ) -> None:
        """What one call wrote to, and what the original may."""
        answer = reference_case.answer
        self._touched |= answer.touched | answer.wrote_state
        self._touched |= {f"input {position}" for position in answer.wrote_inputs}
        names = {f"input {i}": spec.name for i, spec in enumerate(case.shape.inputs.inputs)}
        for name in reply_strings(reply.get("wrote")):
            changed = InputsChanged(case=case.label, name=names.get(name, name))
            self._wrote.setdefault(name, changed)

    def inputs_written(self) -> InputsChanged | None:
        """What the candidate has written to in some call and the original in none, whether or not
        it put it back: a reader on another stream would have seen it."""
        found = (changed for name, changed in self._wrote.items() if name not in self._touched)
        return next(found, None)

    def raced(self) -> RaceFound | None:
        """The first race that a call in the interpreter has shown."""
        return race_found(self.races) if self.races else None

    def one_sided(self) -> list[str]:
        """Outputs that were the same everywhere in every case until now: a file that computes
        something else may well be right about those."""
        truths = [
            f"output {index} is {next(iter(found))} everywhere in every case: "
            f"whether it is ever {not next(iter(found))} was not seen"
            for index, found in self.truths.items()
            if len(found) == 1
        ]
        return truths + [
            f"output {index} is {low:g} everywhere in every case: "
            "whether it is ever anything else was not seen"
            for index, (low, _) in self._spans.items()
            if not self._varies(index)
        ]


def race_found(races: Sequence[str]) -> RaceFound:
    """The first of what the interpreter saw, each of the form "kernel k line 3: ..."."""
    where, _, text = races[0].partition(": ")
    line = where.rpartition(" ")[2]
    number = int(line) if line.isdecimal() else 0
    return RaceFound(tool="interpreter", line=number, text=f"{where}: {text}")
