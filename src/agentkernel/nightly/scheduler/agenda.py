"""Which job does a night give out next, and what does each answer change?"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.night import LostJob, ModelRow
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.nightly.scheduler.decided import (
    FailedKernels,
    Placement,
    RegionOutcome,
    outcome_of,
    placements,
    uses_by_model,
)
from agentkernel.nightly.scheduler.jobs import (
    Answer,
    CutDone,
    CutJob,
    EndToEndDone,
    EndToEndJob,
    Job,
    JobFailed,
    KernelDone,
    KernelJob,
    ZooPart,
    read_answer,
)
from agentkernel.nightly.scheduler.known import KnownKernels
from agentkernel.nightly.scheduler.known_cuts import KnownCuts
from agentkernel.nightly.scheduler.question import KernelStore, NightRequest, Ranking
from agentkernel.nightly.scheduler.signed import is_as_signed
from agentkernel.nightly.scheduler.worklist import RegionQueue
from agentkernel.tools.live_module import LIVE

LEAST_S = 20.0
"""A draft is not begun with less."""
HELD_KERNELS = 256
"""Kernels that several models share are not read again for each; all of them would be too many."""


def ignore_change() -> None:
    """Nothing."""


@dataclass
class Scheduler:
    """The jobs of one night. `spent_s` is the wall time of earlier calls of the same night.

    Answers are on the books as soon as they are known; a job that is answered there is not given
    out again, unless its kernel was changed there since its run signed it. `changed` is called
    after each change.
    """

    question: NightRequest
    kernel_store: KernelStore
    ranking: Ranking
    spent_s: float = 0.0
    changed: Callable[[], None] = ignore_change
    clock: Callable[[], float] = time.monotonic
    cuts: dict[str, ModelCut] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    """By signature; none before all models are cut."""
    decided: dict[str, RegionOutcome] = field(default_factory=dict)
    rows: dict[str, ModelRow] = field(default_factory=dict)
    lost_jobs: list[LostJob] = field(default_factory=list)
    running: dict[str, Job] = field(default_factory=dict)
    seconds: float = 0.0
    gpu: str | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._parts = {part.model.name: part for part in self.question.parts}
        self._to_cut = deque(self.question.parts)
        self._list: RegionQueue | None = None
        self._uses: dict[str, list[Placement]] = {}
        self._known = KnownKernels(self.kernel_store)
        self._cuts = KnownCuts(self.question, self.kernel_store)
        self._setbacks = FailedKernels()
        self._end_to_end_jobs: deque[ZooPart] = deque(self.question.parts)
        self._kernel = lru_cache(HELD_KERNELS)(self._known.answered)
        self.gpu = self.question.gpu

    # What an engine asks and tells.

    def take(self) -> Job | None:
        """The next job that nobody has answered; None where there is none for now."""
        while True:
            job = self._next()
            if job is None:
                return None
            self.running[job.key] = job
            known = self._answered(job)
            if known is None:
                self.changed()
                return job
            self._apply(job, known)

    def done(self, job: Job, answer: Answer) -> None:
        """Keep the answer, then act on it."""
        self.kernel_store.save_job(job.key, job.kind, answer.model_dump_json())
        if isinstance(job, CutJob) and isinstance(answer, CutDone):
            self._cuts.keep(job, answer)
        self._apply(job, answer)
        self.changed()

    def lost(self, job: Job, why: str, again: int) -> None:
        """Its worker was lost."""
        self.lost_jobs.append(LostJob(job=job.name, why=why, again=again))
        self.changed()

    # What the night is at.

    @property
    def wall_s(self) -> float:
        """Wall seconds of this night, in all calls together."""
        return self.spent_s + self.clock() - self._began

    @property
    def order(self) -> tuple[Region, ...]:
        """The regions that are worked on or wait, the most promising first."""
        return self._list.order if self._list is not None else ()

    def left_s(self) -> float | None:
        """Wall seconds that drafts may still take; None: no limit."""
        if self.question.budget_s is None:
            return None
        return self.question.budget_s * (1.0 - self.question.reserve) - self.wall_s

    # How the next job is found.

    def _next(self) -> Job | None:
        if self._to_cut:
            part = self._to_cut.popleft()
            return CutJob(
                night=self.question.night, part=part, target=self.question.settings.target
            )
        if any(isinstance(job, CutJob) for job in self.running.values()):
            return None
        work = self._list if self._list is not None else self._merged()
        return self._next_kernel(work) or self._next_end_to_end(work)

    def _merged(self) -> RegionQueue:
        """The regions of all models, once the last of them is cut."""
        weights = {part.model.name: part.model.weight for part in self.question.parts}
        # In the zoo's order, not in that of the answers: the same night has the same table.
        cuts = tuple(self.cuts[name] for name in self._parts if name in self.cuts)
        merged = self.ranking.merge(cuts, weights)
        self.regions = {item.signature: item for item in merged}
        self._uses = uses_by_model(merged)
        order = self.ranking.order(merged)
        self._list = RegionQueue(order, lambda region: self._known.is_known(self._key(region)))
        return self._list

    def _next_kernel(self, work: RegionQueue) -> KernelJob | None:
        while (region := work.take()) is not None:
            job = self._kernel_job(region, work)
            if job.known is not None or self.kernel_store.job(job.key) is not None:
                return job
            refused = self._refuse(job)
            if refused is None:
                return job
            self._decide(region, refused)
        return None

    def _kernel_job(self, region: Region, work: RegionQueue) -> KernelJob:
        turn = self._setbacks.turn(region.signature)
        left = self.left_s()
        budget = None
        if left is not None:
            # So many jobs at a time share the wall time that is left.
            seconds = max(left, 0.0) * self.question.workers
            budget = min(self.ranking.budget(region, work.rest, seconds), max(left, 1.0))
        settings, key = self.question.settings, self._key(region)
        known = self._known.kernel(key) if turn == 1 else None
        use = _use_for(region, known)
        if use is None:  # it was made for operands of other names: it cannot be judged here
            use, known = region.uses[0], None
        parent = self._setbacks.parents.get(region.signature)
        if known is None and parent is None:
            parent = self._known.earlier(key)
        return KernelJob(
            night=self.question.night,
            part=self._parts[use.model],
            region=region,
            use=use,
            key_of_kernel=key,
            known=known,
            parent=parent,
            turn=turn,
            settings=settings,
            budget_s=budget,
            runs=f"{settings.runs}/{region.signature}-{turn}",
        )

    def _refuse(self, job: KernelJob) -> RegionOutcome | None:
        """Why no draft is begun; None where one is."""
        left = self.left_s()
        if left is not None and left < LEAST_S:
            return RegionOutcome(status="unreached", reason="the budget was spent before it")
        known = self._known.nothing(job)
        if known is None:
            return None
        reason = f"nothing was found on {known.when[:10]} with the same versions: {known.reason}"
        return RegionOutcome(status="kept", reason=reason)

    def _next_end_to_end(self, work: RegionQueue) -> EndToEndJob | None:
        """A model about whose regions nothing is open."""
        for _ in range(len(self._end_to_end_jobs)):
            part = self._end_to_end_jobs.popleft()
            name = part.model.name
            if name in self.errors:
                continue
            if not work.is_open(name):
                return self._end_to_end_job(part)
            self._end_to_end_jobs.append(part)
        return None

    def _end_to_end_job(self, part: ZooPart) -> EndToEndJob:
        kernels: dict[str, Kernel] = {}
        parameters: dict[str, tuple[str, ...]] = {}
        for use, signature in placements(self._uses.get(part.model.name, ()), self.decided):
            found = self.decided[signature]
            kernel = self._kernel(found.job, signature, found.sha256)
            if kernel is not None:
                kernels[use.path], parameters[use.path] = kernel, use.parameters
        return EndToEndJob(
            night=self.question.night,
            part=part,
            target=self.question.settings.target,
            cut=self.cuts[part.model.name],
            kernels=kernels,
            parameters=parameters,
        )

    # How an answer is taken in.

    def _answered(self, job: Job) -> Answer | None:
        text = self.kernel_store.job(job.key)
        if text is None:
            return self._cuts.known(job) if isinstance(job, CutJob) else None
        try:
            answer = read_answer(text)
        except ValidationError:  # an older version's: it is done again
            return None
        if isinstance(answer, KernelDone) and answer.status != "withdrawn":
            kernel = answer.kernel  # it would run in a model, outside of any sandbox
            return answer if kernel is None or is_as_signed(kernel, text) else None
        return answer

    def _apply(self, job: Job, answer: Answer) -> None:
        self.running.pop(job.key, None)
        self.seconds += answer.seconds
        match job, answer:
            case CutJob(), CutDone():
                self.cuts[job.part.model.name] = answer.cut
                self.gpu = self.gpu or answer.gpu
            case KernelJob(), KernelDone():
                self._take_in(job, answer)
            case KernelJob(), JobFailed():
                parent = job.parent or (job.known.sha256 if job.known else None)
                failed = RegionOutcome(
                    status="failed", reason=answer.error, parent=parent, seconds=answer.seconds
                )
                self._decide(job.region, failed)
            case EndToEndJob(), EndToEndDone():
                self.rows[job.part.model.name] = answer.row
            case _, JobFailed():
                self.errors[job.part.model.name] = answer.error
            case _:
                self.errors[job.part.model.name] = f"a {job.kind} job came back as {answer.kind}"

    def _take_in(self, job: KernelJob, answer: KernelDone) -> None:
        """What a region's job found goes into the library; all of it may be done twice."""
        if answer.status == "reused" and answer.kernel is not None:
            self.kernel_store.verified(answer.kernel.sha256, _now())
        elif answer.kernel is not None and answer.status in ("new", "retuned"):
            live = Path(job.runs) / answer.kernel.run / LIVE
            self.kernel_store.put(
                answer.kernel, live=live if live.is_file() else None, night=job.night
            )
        elif answer.status == "withdrawn":
            self._withdraw(job, answer)
            return
        elif answer.status == "kept":
            self._known.remember(job, answer, _now())
        self._decide(job.region, outcome_of(job, answer))

    def _withdraw(self, job: KernelJob, answer: KernelDone) -> None:
        """The library gives a kernel out no more, and its region waits for a draft."""
        # Asked again after a kill, the library gives it out no more.
        sha256 = job.known.sha256 if job.known is not None else job.parent
        if answer.kernel is not None:
            sha256 = answer.kernel.sha256
        if sha256 is not None:
            # The night in the reason tells it from what nobody has withdrawn yet.
            self.kernel_store.withdraw(sha256, f"{answer.reason} (night {job.night})")
        self._setbacks.note(job, answer.reason, sha256)
        if self._list is not None:
            self._list.again(job.region)

    def _decide(self, region: Region, what: RegionOutcome) -> None:
        signature = region.signature
        told = self._setbacks.told(signature, what)
        self.decided[signature] = told
        if self._list is not None:
            found = None if told.status == "unreached" else told.sha256 is not None
            self._list.decided(signature, found)

    def _key(self, region: Region) -> KernelKey:
        return self.question.key_of(region, self.gpu)


def _use_for(region: Region, known: Kernel | None) -> RegionUse | None:
    """The use on which a kernel is drafted, or a `known` one judged: its operands' names count."""
    if known is None:
        return region.uses[0]
    return next((use for use in region.uses if use.parameters == known.parameters), None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
