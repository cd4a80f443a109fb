"""Sources of one problem among which a search chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.target import Target
from agentkernel.tools.compile.candidate import Compilation, Family, compile_families
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.search.cost import MatrixWork

Schedule = dict[str, dict[str, int]]


class Form(NamedTuple):
    """Another text of a source: the same kernels, launched in another way."""

    label: str
    text: str


Forms = Callable[[int, float], Sequence[Form]]
"""Forms worth timing of the source at a place that takes so many microseconds."""


@dataclass(frozen=True)
class Space:
    """Each source is a drop-in of `problem` under one of `schedules`, best guess first.

    `segment` names the part of a model that the problem is ("" for a whole one): its pattern and
    its structure's hash. The sources at the places `hints` were fast before: they are measured
    first. `matrix` is what its own kernels multiply. `work_us`, about what it takes in the end, is
    its weight beside other parts: time does not suffice for all sources of all.
    """

    problem: LoadedProblem
    sources: tuple[str, ...]
    labels: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    segment: str = ""
    hints: tuple[int, ...] = ()
    matrix: MatrixWork | None = None
    work_us: float = 1.0

    def with_forms(self, place: int, forms: Sequence[Form]) -> Space:
        """The same with `forms` of the source at `place` behind the others."""
        return replace(
            self,
            sources=(*self.sources, *(form.text for form in forms)),
            labels=(*self.labels, *(form.label for form in forms)),
            schedules=(*self.schedules, *(self.schedules[place] for _ in forms)),
        )

    def result(
        self, index: int, pruned: str | None, time_us: float | None, estimated_us: float | None
    ) -> TrialResult:
        """What is known of source `index`, in microseconds."""
        return TrialResult(
            label=self.labels[index],
            sha256=sha256_text(self.sources[index]),
            schedule=self.schedules[index],
            pruned=pruned,
            time_us=time_us,
            estimated_us=estimated_us,
            segment=self.segment,
        )


Estimator = Callable[[Space, Sequence[Compilation], Target], Sequence[float | None]]
"""Microseconds of each source of a space; None where it did not compile."""


def compile_spaces(
    spaces: Sequence[Space], target: Target, *, seconds: float, allow_unsandboxed: bool = False
) -> tuple[tuple[Compilation, ...], ...]:
    """One outcome a source of each space, with the binaries; None where `seconds` did not
    suffice."""
    return compile_families(
        [Family(space.problem, space.sources, weight=space.work_us) for space in spaces],
        target,
        seconds=seconds,
        allow_unsandboxed=allow_unsandboxed,
        binaries=True,
    )
