"""Attempts of this run and experiences of earlier runs, as planners and coders use them.

Covers how the attempts read in a prompt, which is the best so far, how well predicted times held
(estimates do not count as measured), and what an earlier run on like shapes lets this one skip.
Distances between shapes and between schedules are counted in doublings (log2 of the ratio).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.agents.evidence import evidence_of
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.plan import FOREIGN, Calibration, Hypothesis, Retrieved, Won
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile

ROOM = 1.1
"""A measured time up to this many times the predicted one is within the prediction."""


def calibration(attempts: Sequence[Attempt]) -> tuple[Calibration, ...]:
    """Predicted against measured time for each who predicted; estimates do not count as measured.

    A candidate counts once, with the last that is known of it.
    """
    latest = {item.candidate.sha256: item for item in attempts}
    ratios: dict[str, list[float]] = {}
    for item in latest.values():
        ratio = measured_over_predicted(item)
        if ratio is not None:
            ratios.setdefault(item.predicted_by, []).append(ratio)
    return tuple(
        Calibration(
            predicted_by=name,
            predictions=len(found),
            within=sum(ratio <= ROOM for ratio in found),
            ratio=math.exp(sum(map(math.log, found)) / len(found)),
        )
        for name, found in sorted(ratios.items())
    )


def measured_over_predicted(attempt: Attempt) -> float | None:
    """The ratio on the primary shapes; None where one of the two is missing."""
    measured = measured_us(attempt)
    if not measured or not attempt.predicted_us:
        return None
    return measured / attempt.predicted_us


def measured_us(attempt: Attempt) -> float | None:
    """Median device time of one call on the primary shapes; None where no GPU ran it."""
    profile = attempt.profile
    return profile.measurements[0].candidate.median_us if profile and profile.measurements else None


MOST_TOLD = 12


class Tried(NamedTuple):
    """One attempt on a line."""

    strategy: str
    predicted_us: float | None
    outcome: str


def tried(history: Sequence[Attempt]) -> tuple[Tried, ...]:
    """The last attempts in order."""
    return tuple(
        Tried(item.candidate.strategy, item.predicted_us, outcome(item))
        for item in history[-MOST_TOLD:]
    )


def outcome(attempt: Attempt) -> str:
    """What became of it."""
    verdict, profile = attempt.verdict, attempt.profile
    if verdict is None:
        return f"not judged: {attempt.aside}" if attempt.aside else "not judged"
    if verdict.undecided:
        return verdict.undecided
    if not verdict.accepted:
        facts = {fact.name: fact.value for fact in evidence_of(attempt.candidate, verdict).facts}
        kept = ("error", "form of the error", "rule broken", "what happened", "place")
        said = "; ".join(facts[name] for name in kept if name in facts)
        return f"refused at the gate {verdict.gate}: {said}"
    if attempt.unprofiled is not None:
        return f"right, but it could not be measured: {attempt.unprofiled.reason}"
    if profile is None:
        return "right"
    if not profile.measurements:
        return f"right, {profile.estimate.time_us:.1f} us estimated"
    primary = profile.measurements[0]
    compiled = f", {primary.vs_compile.value:.2f}x torch.compile" if primary.vs_compile else ""
    return (
        f"right, {primary.candidate.median_us:.1f} us measured, {primary.vs_eager.value:.2f}x "
        f"eager{compiled}, {primary.roofline_fraction:.0%} of the roofline"
    )


def best_so_far(history: Sequence[Attempt]) -> Attempt | None:
    """The fastest right candidate that could be profiled; measured ones go before estimated."""
    return next(iter(fastest(history, 1)), None)


def fastest(history: Sequence[Attempt], most: int) -> tuple[Attempt, ...]:
    """The `most` fastest of the right candidates, the best first."""
    return tuple(sorted(filter(_usable, history), key=_time)[:most])


def known_time_us(attempt: Attempt) -> float | None:
    """Its time, measured or else estimated."""
    rank, time_us = _time(attempt)
    return time_us if rank < 2 else None


def right_time(attempt: Attempt) -> tuple[int, float] | None:
    """What right candidates are ordered by, the least first; None for one that is not right, or
    breaks where it is measured."""
    return _time(attempt) if _usable(attempt) else None


def _usable(attempt: Attempt) -> bool:
    accepted = attempt.verdict is not None and attempt.verdict.accepted
    broken = attempt.unprofiled is not None and attempt.unprofiled.side == "candidate"
    return accepted and not broken


def _time(attempt: Attempt) -> tuple[int, float]:
    measured = measured_us(attempt)
    if measured is not None:
        return 0, measured
    return (1, attempt.profile.estimate.time_us) if attempt.profile else (2, 0.0)


ALIKE = 0.95
"""Least structural similarity of a problem whose winner is worth starting from. The same ops at
other sizes have 1.00; with another dtype or roofline class 0.97; with another rank 0.96; reduced
along another dimension 0.90; with one op more than one to three 0.53 to 0.86, than nine 0.96 to
0.99; written out 0.88; another norm 0.29."""
CLEAR_SLOWDOWN = 1.15
"""A strategy that took so many times as long as the winner is not tried again: what sizes within
one structure changed between two strategies was less than this, as was the noise of a clock."""
SHORT = 0.85
"""Of the share of the roofline that the winner reached there, the least that it is to reach here:
below it the old schedule does not fit these sizes."""
LEVEL = 1.05
"""Estimates within this of each other are level: they tell apart what is moved, not how well."""
FORM_APART = 4.0
"""What another form (rows held, or walked in tiles) counts, in doublings of a tile size."""
MISSING = 1.0
"""What a constant counts that one of two schedules does not have, in the same doublings."""
Schedule = dict[str, dict[str, int]]


def starting_experience(
    retrieved: Sequence[Retrieved], family: str | None, problem: Problem
) -> Retrieved | None:
    """The experience to start from: of those alike enough that were gathered on `family` and seen
    to be right, the most alike; of equals one that a GPU verified, an own one before an imported
    one, a measured one, that with the nearest sizes, then the nearest to its roofline. None where
    there is none."""
    near = [
        (item, item.won)
        for item in retrieved
        if item.won is not None
        and item.won.family == family
        and (item.similarity or 0.0) >= ALIKE
        and item.verified != "no"
    ]
    shapes = shapes_of(problem)
    ranked = sorted(
        near,
        key=lambda pair: (
            -(pair[0].similarity or 0.0),
            pair[0].verified != "gpu",
            pair[0].source.startswith(FOREIGN),
            not pair[1].measured,
            shapes_apart(pair[1].shapes, shapes),
            -(pair[1].roofline or 0.0),
            pair[0].id,
        ),
    )
    return ranked[0][0] if ranked else None


def shapes_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Of the tensor inputs of the primary shape set."""
    return tuple(tuple(item.shape) for item in problem.shape_sets[0].tensors)


def shapes_apart(left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> float:
    """How many doublings lie between two sets of shapes, over all their sizes; inf for other
    ranks."""
    if [len(shape) for shape in left] != [len(shape) for shape in right]:
        return math.inf
    sizes = zip(
        (size for shape in left for size in shape),
        (size for shape in right for size in shape),
        strict=True,
    )
    return sum(doublings(one, other) for one, other in sizes)


def doublings(left: int, right: int) -> float:
    """|log2(left / right)|; where one is no positive number, whether they differ."""
    if left <= 0 or right <= 0:
        return float(left != right)
    return abs(math.log2(left) - math.log2(right))


def follow_experience(
    ranked: Sequence[Hypothesis], start: Retrieved
) -> tuple[Hypothesis, ...] | None:
    """`ranked` with the strategy that won there first, and without those that clearly lost there.

    None where the winner's strategy is not offered here: nothing follows from it then.
    """
    won = start.won
    first = next((item for item in ranked if won and item.strategy == won.strategy), None)
    if won is None or first is None:
        return None
    led = first.evolve(because=start.id, reason=f"it won in {start.id}; {first.reason}")
    rest = (item for item in ranked if item is not first and not _lost(item, won))
    return (led, *rest)


def without_losers(
    ranked: Sequence[Hypothesis], start: Retrieved, history: Sequence[Attempt]
) -> list[Hypothesis]:
    """A later plan's `ranked` without what clearly lost there, as long as the start holds."""
    begun = [item for item in history if item.candidate.origin == start.id]
    if start.won is None or not experience_holds(begun, start.won):
        return list(ranked)
    return [item for item in ranked if not _lost(item, start.won)]


def _lost(hypothesis: Hypothesis, won: Won) -> bool:
    return won.lost.get(hypothesis.strategy, 0.0) >= CLEAR_SLOWDOWN


def winner_for(hypothesis: Hypothesis, retrieved: Sequence[Retrieved]) -> Won | None:
    """What the experience says that `hypothesis` rests on; None where it rests on none."""
    found = (item.won for item in retrieved if item.id == hypothesis.because)
    return next(found, None) if hypothesis.because else None


def schedules_apart(
    left: Schedule, right: Schedule, left_forms: Sequence[str], right_forms: Sequence[str]
) -> float:
    """How far apart the constants of two drop-ins are, in doublings. Kernels are compared by name,
    those without a namesake in their order."""
    total = FORM_APART * sum(
        one != other for one, other in zip(left_forms, right_forms, strict=False)
    )
    total += FORM_APART * abs(len(left_forms) - len(right_forms))
    shared = [name for name in left if name in right]
    ours = [left[name] for name in (*shared, *(key for key in left if key not in right))]
    theirs = [right[name] for name in (*shared, *(key for key in right if key not in left))]
    total += FORM_APART * abs(len(ours) - len(theirs))
    for one, other in zip(ours, theirs, strict=False):
        for key in {*one, *other}:
            both = key in one and key in other
            total += doublings(one[key], other[key]) if both else MISSING
    return total


def matches_baselines(profile: Profile | None) -> bool:
    """True where it was measured, and no baseline is clearly faster on any shape set."""
    measured = profile.measurements if profile else ()
    ratios = [
        ratio
        for item in measured
        for ratio in (item.vs_eager, item.vs_compile, item.vs_autotune)
        if ratio is not None
    ]
    return bool(ratios) and all(
        ratio.call in ("faster", "same") if ratio.call else ratio.low >= 1.0 for ratio in ratios
    )


def experience_holds(attempts: Sequence[Attempt], won: Won) -> bool:
    """True where one of `attempts`, which all began from the experience, is as good as it promised:
    accepted, level with the fastest baseline or faster, and about as near to the roofline as there.

    Without a measurement: it fits, and its estimate is level with eager's or below.
    """
    return any(_holds(item, won) for item in attempts)


def _holds(attempt: Attempt, won: Won) -> bool:
    verdict, profile = attempt.verdict, attempt.profile
    if verdict is None or not verdict.accepted or profile is None:
        return False
    if not profile.measurements:
        eager = profile.baseline_estimate
        fits = profile.report is None or profile.report.fits
        return fits and (eager is None or profile.estimate.time_us <= LEVEL * eager.time_us)
    if not matches_baselines(profile):
        return False
    reached = profile.measurements[0].roofline_fraction
    return won.roofline is None or reached >= SHORT * won.roofline
