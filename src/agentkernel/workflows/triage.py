"""Which drafted candidates are not worth a judgement, as far as the search has seen?

A judgement and a profile cost more than all that went before. The search has timed a candidate
already, less carefully but by the same clock as its rivals of other strategies.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.workflows.outcome import OUT_OF_TIME, accepted, broke_profiling
from agentkernel.workflows.state import DECLINED

RIVAL = 0.99
"""A candidate must take less than this share of an accepted one's time, in the search: what is as
fast as that changes nothing."""
BASELINE = 1.25
"""A candidate this many times slower than a baseline is handed over to nobody. The search and the
quick look at the baselines are two clocks, hence the room."""


def should_skip(
    candidate: Candidate, history: Sequence[Attempt], baseline_us: float | None
) -> str | None:
    """Why `candidate` need not be judged now; None where it should be."""
    own = candidate.searched_us
    if own is None:
        return None
    rivals = [item for item in history if item.candidate.searched_us and _stands(item)]
    best = min(rivals, key=lambda item: item.candidate.searched_us or 0.0, default=None)
    if best is not None and own >= RIVAL * (best.candidate.searched_us or own):
        times = own / (best.candidate.searched_us or own)
        return f"in the search {times:.2f}x the time of the accepted {best.candidate.id}"
    if baseline_us is not None and own > BASELINE * baseline_us:
        return f"in the search {own / baseline_us:.2f}x slower than the faster baseline"
    return None


def retry_skipped(history: Sequence[Attempt]) -> Candidate | None:
    """Of those set aside the fastest, where no candidate was accepted: a run should end knowing
    whether what it wrote is right."""
    if any(_stands(item) for item in history):
        return None
    waiting = [
        item.candidate
        for item in history
        if item.aside not in ("", DECLINED, OUT_OF_TIME) and item.verdict is None
    ]
    return min(waiting, key=lambda item: item.searched_us or 0.0, default=None)


def _stands(attempt: Attempt) -> bool:
    """True where it may be handed over: accepted, and not broken while it was profiled."""
    return accepted(attempt) and not broke_profiling(attempt)
