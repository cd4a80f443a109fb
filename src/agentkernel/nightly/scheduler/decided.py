"""What became of each region, and which submodules of a model get a kernel for it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentkernel.domain.night import RegionStatus
from agentkernel.domain.region import Region, RegionUse
from agentkernel.nightly.page.withdrawn import SINCE
from agentkernel.nightly.scheduler.jobs import KernelDone, KernelJob


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """What became of a region. Of its kernel only what a table shows: the whole of it, with its
    certificate, is in the answer to `job`. A night has too many to hold them all."""

    status: RegionStatus
    reason: str = ""
    sha256: str | None = None
    time_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    job: str = ""
    parent: str | None = None
    run: str | None = None
    seconds: float = 0.0


class Placement(NamedTuple):
    """A submodule, and the region whose kernel it may get."""

    use: RegionUse
    signature: str


@dataclass
class FailedKernels:
    """The known kernels that did not hold this night, by signature. `parents` are their hashes."""

    parents: dict[str, str] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)

    def turn(self, signature: str) -> int:
        """Number of the region's next job, from 1."""
        return self._turns.get(signature, 1)

    def note(self, job: KernelJob, cause: str, sha256: str | None) -> None:
        """The kernel `sha256` was withdrawn, and its region has another turn."""
        signature = job.region.signature
        if sha256 is not None:
            self.parents[signature] = sha256
        self._causes[signature] = cause
        self._turns[signature] = job.turn + 1

    def told(self, signature: str, what: RegionOutcome) -> RegionOutcome:
        """What the morning must hear, whatever came after."""
        cause = self._causes.get(signature)
        if cause is None:
            return what
        after = f"{SINCE}{what.status}" + (f" ({what.reason})" if what.reason else "")
        parent = self.parents.get(signature)
        return replace(what, status="withdrawn", reason=f"{cause}{after}", parent=parent)


def outcome_of(job: KernelJob, answer: KernelDone) -> RegionOutcome:
    """What an answer makes of its region."""
    kernel = answer.kernel
    return RegionOutcome(
        status=answer.status,
        reason=answer.reason,
        sha256=kernel.sha256 if kernel else None,
        time_us=kernel.time_us if kernel else None,
        speedup=kernel.speedup if kernel else None,
        speedup_low=kernel.speedup_low if kernel else None,
        job=job.key,
        parent=None if answer.status == "reused" else job.parent,
        run=answer.run,
        seconds=answer.seconds,
    )


def uses_by_model(regions: Sequence[Region]) -> dict[str, list[Placement]]:
    """All uses of each model, in the order of `regions`."""
    found: dict[str, list[Placement]] = {}
    for region in regions:
        for use in region.uses:
            found.setdefault(use.model, []).append(Placement(use, region.signature))
    return found


def placements(
    uses: Sequence[Placement], decided: Mapping[str, RegionOutcome]
) -> tuple[Placement, ...]:
    """Which submodule of one model, whose `uses` these are, gets a kernel: none within another
    that has one."""
    able = [
        item
        for item in uses
        if (found := decided.get(item.signature)) is not None and found.sha256 is not None
    ]
    chosen: list[Placement] = []
    for item in sorted(able, key=lambda one: (one.use.path.count("."), one.use.path)):
        if not any(are_nested(item.use.path, other.use.path) for other in chosen):
            chosen.append(item)
    return tuple(chosen)


def are_nested(one: str, other: str) -> bool:
    """True where one of two submodules lies in the other, or they are the same."""
    if "" in (one, other) or one == other:
        return True
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")
