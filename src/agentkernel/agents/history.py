"""What has been tried so far, in the words that a model is told it in, and what is best of it?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.calibration import measured_us
from agentkernel.agents.evidence import evidence_of
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.base import Frozen

MOST_TOLD = 12


class Tried(Frozen):
    """One attempt on a line."""

    strategy: str
    coder: str
    outcome: str
    measured_us: float | None
    predicted_us: float | None


def tried(history: Sequence[Attempt], most: int = MOST_TOLD) -> tuple[Tried, ...]:
    """The last `most` attempts in order."""
    return tuple(
        Tried(
            strategy=item.candidate.strategy,
            coder=item.candidate.coder,
            outcome=outcome(item),
            measured_us=measured_us(item),
            predicted_us=item.predicted_us,
        )
        for item in history[-most:]
    )


def outcome(attempt: Attempt) -> str:
    """What became of it."""
    verdict, profile = attempt.verdict, attempt.profile
    if verdict is None:
        return f"not judged: {attempt.aside}" if attempt.aside else "not judged"
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
