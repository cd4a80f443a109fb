"""What did an earlier run learn that this one may start from?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.plan import FOREIGN, Hypothesis, Retrieved, Won
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile

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
    told = {"because": start.id, "reason": f"it won in {start.id}; {first.reason}"}
    rest = (item for item in ranked if item is not first and not _lost(item, won))
    return (first.model_copy(update=told), *rest)


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
