"""Ranking of schedules by cross-compilation: pruned by resources, then estimated."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.tools.compile.candidate import Compilation, CompileOutcome
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.roofline.model import analyse, estimate
from agentkernel.tools.sandbox.session import search_seconds
from agentkernel.tools.search.cost import cost_us
from agentkernel.tools.search.space import (
    Estimator,
    Forms,
    Schedule,
    Space,
    compile_spaces,
)

BUDGET_SPENT = "the search's time was spent before its turn"
LOG_CHARS = 200


def prune(outcomes: Sequence[CompileOutcome | None]) -> tuple[str | None, ...]:
    """Why each source is out, None for those that stay.

    Out: what fails to load or compile, and what goes past the target's limits. What spills is out
    as long as something that does not spill remains.
    """
    reasons = [_unfit(item) for item in outcomes]
    spilled = [_spills(item) for item in outcomes]
    clean = any(
        reason is None and spill is None for reason, spill in zip(reasons, spilled, strict=True)
    )
    return tuple(
        reason or (spill if clean else None) for reason, spill in zip(reasons, spilled, strict=True)
    )


def _unfit(outcome: CompileOutcome | None) -> str | None:
    if outcome is None:
        return None
    if not isinstance(outcome, CompileReport):
        return f"{outcome.kind}: {last_line(outcome.log)}"
    for kernel in outcome.kernels:
        if not kernel.fits:
            return f"{kernel.name} does not fit: {(kernel.error or 'over the limits')[:LOG_CHARS]}"
    return None


def last_line(log: str) -> str:
    """Where a traceback names its exception."""
    lines = log.strip().splitlines()
    return lines[-1][:LOG_CHARS] if lines else ""


def _spills(outcome: CompileOutcome | None) -> str | None:
    if not isinstance(outcome, CompileReport):
        return None
    for kernel in outcome.kernels:
        if kernel.spill_bytes:
            return f"{kernel.name} spills {kernel.spill_bytes} bytes a thread"
    return None


TIE = 1e-6
"""Relative step by which the estimate of a less preferred schedule is raised."""
ENOUGH_OCCUPANCY = 0.5
"""More resident warps than half of an SM's hide no further latency in memory-bound kernels
(Volkov, "Better Performance at Lower Occupancy", GTC 2010)."""


class StaticSearcher:
    """Ranks by cross-compiling alone: what does not fit or spills is out, the rest is estimated.

    Many schedules share an estimate. Among those the static preference decides, and raises
    `estimated_us` by a millionth a place: first those that reach half of the SM's warps, then the
    order given (a coder lists its favourite first). The budget is `seconds` of wall time, less
    where the run in force has not much left.
    """

    def __init__(self, seconds: float = 60.0, *, allow_unsandboxed: bool = False) -> None:
        self._seconds = seconds
        self._allow_unsandboxed = allow_unsandboxed

    def rank(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        labels: Sequence[str],
        schedules: Sequence[Schedule],
        target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:
        """One result a source, in the order given; `estimated_us` is in microseconds. Nobody times
        forms here: none is asked for."""
        del forms
        space = Space(problem, tuple(sources), tuple(labels), tuple(schedules))
        return self._ranked([space], target, estimate_all)[0]

    @property
    def most_sampled(self) -> int:
        """None: nobody measures whether a cheap one is fast."""
        return 0

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """One result a source of each space, each by its own estimate."""
        return self._ranked(spaces, target, estimate_alone)

    def _ranked(
        self, spaces: Sequence[Space], target: Target, estimator: Estimator
    ) -> tuple[tuple[TrialResult, ...], ...]:
        compiled = compile_spaces(
            spaces,
            target,
            seconds=search_seconds(self._seconds),
            allow_unsandboxed=self._allow_unsandboxed,
        )
        results = []
        for space, made in zip(spaces, compiled, strict=True):
            estimates, pruned = estimator(space, made, target), prune([x.outcome for x in made])
            results.append(tuple(
                space.result(
                    index, pruned[index] or (BUDGET_SPENT if item.outcome is None else None), None,
                    estimates[index],
                )
                for index, item in enumerate(made)
            ))  # fmt: skip
        return tuple(results)


def estimate_all(
    space: Space, made: Sequence[Compilation], target: Target
) -> tuple[float | None, ...]:
    """The roofline estimate of each report with the static preference in it; None without one."""
    reports = [item.outcome if isinstance(item.outcome, CompileReport) else None for item in made]
    if not any(reports):
        return (None,) * len(made)
    analysis = analyse(capture(space.problem), target)
    times = [None if item is None else estimate(item, analysis, target).time_us for item in reports]
    return _in_order(times, preference(reports))


def estimate_alone(
    space: Space, made: Sequence[Compilation], target: Target
) -> tuple[float | None, ...]:
    """The cost of each by its binaries; of equal ones the first in the order given."""
    times = [
        cost_us(item.outcome, item.instructions, target, space.matrix)
        if isinstance(item.outcome, CompileReport)
        else None
        for item in made
    ]
    return _in_order(times, range(len(times)))


def _in_order(times: Sequence[float | None], order: Sequence[int]) -> tuple[float | None, ...]:
    """The times, each raised by its place in the order of preference."""
    places = {index: place for place, index in enumerate(order)}
    return tuple(
        None if time is None else time * (1.0 + TIE * places[index])
        for index, time in enumerate(times)
    )


def preference(reports: Sequence[CompileReport | None]) -> tuple[int, ...]:
    """Indices of the reports there are, the preferred first: see StaticSearcher."""
    known = [(index, item) for index, item in enumerate(reports) if item is not None]
    ranked = sorted(known, key=lambda pair: (-min(_occupancy(pair[1]), ENOUGH_OCCUPANCY), pair[0]))
    return tuple(index for index, _ in ranked)


def best_first(trials: Sequence[TrialResult]) -> tuple[int, ...]:
    """Indices of the trials that are not pruned, best first: measured ones by time, then the rest
    by their estimate, then those with neither in the order given."""
    ranked = [index for index, item in enumerate(trials) if item.pruned is None]
    return tuple(sorted(ranked, key=lambda index: _merit(trials[index])))


def _merit(trial: TrialResult) -> tuple[int, float]:
    if trial.time_us is not None:
        return (0, trial.time_us)
    return (2, 0.0) if trial.estimated_us is None else (1, trial.estimated_us)


def _occupancy(report: CompileReport) -> float:
    """The lowest occupancy of any launch, in sixteenths so that near ones count as equal."""
    known = [item.occupancy for item in report.kernels if item.occupancy is not None]
    return round(min(known, default=1.0) * 16) / 16
