"""Did a candidate of the corpus come to what was expected of it?"""

from __future__ import annotations

from agentkernel.bench.redteam.corpus import CorpusEntry
from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.verdict import GATES, Failure, Gate, LoadFailed, RunFailed, Verdict

NOT_THE_CANDIDATES = ("eager", "gpu")
"""Sides of a failed profile that say nothing about the candidate."""
CROWDED = ("memory", "timeout", "died")
"""What a candidate may fail of because others run beside it."""
NAMING = ("rule", "reason", "pattern", "tool", "name", "text", "expected", "found")
"""Entries of a failure that say what is wrong, in the order in which they read well."""
UNDECIDED = "No case could be judged"


class CorpusFinding(Frozen):
    """What became of one candidate. Times are wall seconds in the process that judged it."""

    name: str
    kind: str
    problem: str
    title: str
    expected: Gate
    gate: Gate | None
    """Where it was rejected, "accepted", or None where nothing was decided."""
    right: bool
    reason: str = ""
    crowded: bool = False
    """It failed of something that neighbours can cause: worth a second look without them."""
    alone: bool = False
    """It was judged while nothing else ran."""
    start_s: float = 0.0
    """Waiting for the sandboxed worker."""
    capture_s: float = 0.0
    cases_s: float = 0.0
    profile_s: float = 0.0

    @property
    def accepted(self) -> bool:
        """The judge found nothing against it."""
        return self.gate == "accepted"

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.start_s + self.capture_s + self.cases_s + self.profile_s


def expected_gate(entry: CorpusEntry) -> Gate:
    """The gate that a candidate has to reach and not to pass."""
    return entry.gate or "accepted"


def compare_with_expected(
    entry: CorpusEntry, verdict: Verdict, profile_failed: ProfileFailed | None = None
) -> CorpusFinding:
    """Compare the judge's finding, and the profiler's where it was asked, with what is expected."""
    gate: Gate | None = None if undecided(verdict) else verdict.gate
    reason = failure_line(verdict.failure)
    if verdict.accepted and profile_failed is not None:
        gate = None if profile_failed.side in NOT_THE_CANDIDATES else "timing"
        reason = f"{profile_failed.side}: {profile_failed.reason}"
    return CorpusFinding(
        name=entry.name,
        kind=entry.kind,
        problem=entry.problem_name,
        title=entry.title,
        expected=expected_gate(entry),
        gate=gate,
        right=is_right(entry, gate),
        reason=reason,
        crowded=_crowded(verdict.failure),
        cases_s=verdict.seconds,
    )


def is_right(entry: CorpusEntry, gate: Gate | None) -> bool:
    """An honest one has to be accepted; a hostile one rejected at its gate or before it.

    Where the source was not to be read, a rejection by reading it proves nothing.
    """
    if gate is None:
        return False
    if entry.kind == "honest":
        return gate == "accepted"
    if gate == "policy" and not entry.static:
        return False
    return GATES.index(gate) <= GATES.index(expected_gate(entry))


def undecided(verdict: Verdict) -> bool:
    """True where the judge tried nothing. A hang is a finding: alone, it is the candidate's own."""
    failure = verdict.failure
    return isinstance(failure, LoadFailed | RunFailed) and failure.log.startswith(UNDECIDED)


def failure_line(failure: Failure | None) -> str:
    """A failure in one line of at most 160 characters."""
    if failure is None:
        return ""
    values = failure.model_dump(exclude={"kind"})
    log = str(values.pop("log", "")).strip().splitlines()
    words = [str(values.get(key)) for key in NAMING]
    words = [word for word in words if word not in ("None", "")] + log[-1:]
    return " ".join(": ".join(words).split())[:160] or failure.kind


def _crowded(failure: Failure | None) -> bool:
    if isinstance(failure, LoadFailed):
        return any(line.startswith(CROWDED) for line in failure.log.splitlines()[:2])
    return isinstance(failure, RunFailed) and failure.reason in CROWDED
