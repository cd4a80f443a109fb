"""What a row's candidate and answer are worth against one baseline, and against the best of them.

The candidate is what the coder wrote; the answer is what is handed back, which may be a baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.bench.suite import BASELINES, Baseline, Row, Sample
from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import Ratio
from agentkernel.tools.speedup import geometric_mean, half_width

FLOOR = 0.98
"""An answer whose interval lies below this times a baseline is worse than that baseline."""
CLEARLY_FASTER = 1.2
OWN_SHARE = 0.1
"""A candidate whose own kernels take less of its time is a library's work in another order."""
KNOWN_WELL = 0.03
"""Relative half-width up to which an interval is narrow."""


def speedup(sample: Sample, baseline: Baseline) -> float:
    """A candidate's measured speedup, 0 where it is wrong or was not measured."""
    ratio = sample.against(baseline)
    return ratio.value if sample.correct and ratio is not None else 0.0


def answer(row: Row, sample: Sample, baseline: Baseline) -> float | None:
    """The speedup of what was handed back: a kept baseline's, else the candidate's."""
    if sample.kept is None:
        return speedup(sample, baseline) or None
    ours, theirs = row.times.of(sample.kept), row.times.of(baseline)
    return theirs / ours if ours and theirs else None


def below(row: Row, baseline: Baseline) -> bool:
    """True where the best answer is surely slower than FLOOR times a baseline."""
    best = row.best
    if best is None:
        return False
    if best.kept is not None:
        return (answer(row, best, baseline) or FLOOR) < FLOOR
    ratio = best.against(baseline)
    return ratio is not None and ratio.high < FLOOR


def fastest(row: Row) -> Baseline | None:
    """The baseline with the shortest time; None where none was timed on a GPU."""
    times = {name: row.times.of(name) for name in BASELINES}
    timed = {name: value for name, value in times.items() if value and row.gpu is not None}
    return min(timed, key=lambda name: timed[name], default=None)


def over_best(row: Row) -> Ratio | None:
    """The best candidate's speedup over the fastest baseline; None where none was accepted, or
    none was timed beside it."""
    best, baseline = row.best, fastest(row)
    if best is None or baseline is None or not best.correct:
        return None
    return best.against(baseline)


def answer_over_best(row: Row) -> float | None:
    """The same of what was handed back: 1 where that is the fastest baseline."""
    best, baseline = row.best, fastest(row)
    return None if best is None or baseline is None else answer(row, best, baseline)


class BestFigures(Frozen):
    """Figures over the best of the baselines, each with the number of rows that it rests on.

    `fast`: answers at CLEARLY_FASTER and more. `own`: accepted candidates whose own kernels take at
    least OWN_SHARE of their time, of the `shares` for which that is known. `narrow`: candidates
    whose 95% interval is within KNOWN_WELL. `below`: answers below FLOOR times some baseline.
    """

    rows: int
    answers: int
    answer_mean: float | None
    fast: int
    candidates: int
    candidate_mean: float | None
    narrow: int
    own: int
    shares: int
    below: tuple[str, ...]


def best_figures(rows: Sequence[Row]) -> BestFigures:
    """Over the rows that a GPU measured."""
    measured = [row for row in rows if row.gpu is not None]
    answers = [value for row in measured if (value := answer_over_best(row)) is not None]
    ratios = [ratio for row in measured if (ratio := over_best(row)) is not None]
    shares = [
        row.best.own_share
        for row in measured
        if row.best is not None and row.best.correct and row.best.own_share is not None
    ]
    return BestFigures(
        rows=len(measured),
        answers=len(answers),
        answer_mean=geometric_mean(answers),
        fast=sum(value >= CLEARLY_FASTER for value in answers),
        candidates=len(ratios),
        candidate_mean=geometric_mean([ratio.value for ratio in ratios]),
        narrow=sum(half_width(ratio) <= KNOWN_WELL for ratio in ratios),
        own=sum(value >= OWN_SHARE for value in shares),
        shares=len(shares),
        below=tuple(row.name for row in measured if any(below(row, name) for name in BASELINES)),
    )
