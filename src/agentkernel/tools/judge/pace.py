"""Seconds of calls in the interpreter, and those that a call at another shape would take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentkernel.tools.judge.cases.shapes import CaseShape, count_rows

LONGEST_S = 30.0
"""A case past the rows of every odd set that would take longer a call is not asked: it would end at
the time limit, which says nothing about the candidate."""
MEASURES: tuple[Callable[[CaseShape], int], ...] = (
    lambda shape: count_rows(shape.inputs),
    lambda shape: shape.elements,
)
"""A kernel's programs, which the interpreter runs one after the other, follow one of these."""


@dataclass
class Pace:
    """The seconds that calls of one candidate took, by shape; the quickest of each counts, which
    other work on the machine has disturbed least."""

    _seconds: dict[str, tuple[CaseShape, float]] = field(default_factory=dict)
    """By the label of a shape."""

    def note(self, shape: CaseShape, seconds: float) -> None:
        """A call at `shape` came to an end after `seconds`."""
        _, known = self._seconds.get(shape.label, (shape, seconds))
        self._seconds[shape.label] = (shape, min(seconds, known))

    def has(self, shape: CaseShape) -> bool:
        """Whether a call at `shape` came to an end."""
        return shape.label in self._seconds

    def predicted_s(self, shape: CaseShape) -> float | None:
        """Seconds of a call at `shape`, proportional to its rows or to its elements, whichever the
        calls so far followed more closely (least squares through the origin); None where calls at
        fewer than two shapes say nothing about that."""
        if len(self._seconds) < 2:
            return None
        fits = [self._fitted(measure) for measure in MEASURES]
        rate, _, measure = min(
            ((*found, measure) for found, measure in zip(fits, MEASURES, strict=True)),
            key=lambda item: item[1],
        )
        return rate * measure(shape)

    def _fitted(self, measure: Callable[[CaseShape], int]) -> tuple[float, float]:
        """Seconds a unit of `measure`, and the sum of squares of what is left."""
        pairs = [(measure(shape), seconds) for shape, seconds in self._seconds.values()]
        rate = sum(x * y for x, y in pairs) / max(1, sum(x * x for x, _ in pairs))
        return rate, sum((y - rate * x) ** 2 for x, y in pairs)
