"""Scheduler of a nightly run: the next job, the queue of regions, and the effect of each answer."""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.domain.nightly import LostJob, ModelRow
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.nightly.library.library import now
from agentkernel.nightly.regions.ranking import MOST_OF_THE_REST, WaitingRegions
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
    KernelStore,
    NightRequest,
    Ranking,
    RegionOrder,
    ZooPart,
    read_answer,
)
from agentkernel.nightly.scheduler.region_outcomes import (
    FailedKernels,
    KnownCuts,
    KnownKernels,
    KnownSeconds,
    Placement,
    RegionOutcome,
    is_as_signed,
    missing_whole,
    outcome_of,
    placements,
    time_over,
    uses_by_model,
)
from agentkernel.tools.own_files import LIVE
from agentkernel.tools.run_store import run_folders


class RegionQueue:
    """The regions of an `order` as they wait, run and are decided.

    What `is_known` comes first, for it costs little; then what saves most of the models' time for a
    second of the night's, by the `seconds` that a draft takes; last what was postponed. Each step
    takes time in the logarithm of what waits and in what an answer changes.
    """

    def __init__(
        self,
        order: RegionOrder,
        is_known: Callable[[Region], bool],
        seconds: Callable[[Region], float] = lambda region: 1.0,
    ) -> None:
        self._order = order
        self._is_known = is_known
        self._seconds = seconds
        self._known: set[str] = set()
        self._last: set[str] = set()
        self._queue: list[tuple[bool, bool, float, str, int]] = []
        self._waiting: dict[str, tuple[int, Region]] = {}
        """With the number of its entry in the queue: an older one counts for nothing."""
        self._pushed = 0
        self._score = 0.0
        self._models: dict[str, frozenset[str]] = {}
        """The models of each undecided region: a later answer may choose other uses of it."""
        self._closed: set[str] = set()
        self._open: Counter[str] = Counter()
        """How many regions of each model are undecided."""
        for region in order.regions:
            self._take_in(region)

    @property
    def order(self) -> tuple[Region, ...]:
        """What is not answered, the most promising first."""
        return self._order.regions

    @property
    def rest(self) -> WaitingRegions:
        """What waits."""
        return WaitingRegions(len(self._waiting), max(0.0, self._score))

    def is_open(self, model: str) -> bool:
        """True where a region of the model is undecided."""
        return self._open[model] > 0

    def take(self) -> Region | None:
        """The next region, which does not wait any more; None where none waits."""
        while self._queue:
            *_, signature, number = heapq.heappop(self._queue)
            waiting = self._waiting.get(signature)
            if waiting is not None and waiting[0] == number:
                return self._leave(signature)
        return None

    def again(self, region: Region) -> None:
        """It waits once more, after a known kernel that does not hold."""
        self._known.discard(region.signature)
        self._wait(region)

    def put_back(self, signature: str) -> None:
        """Nothing is known of it yet: what lies in it comes in meanwhile, and it stays open."""
        for region in self._order.answered(signature, False):
            self._take_in(region)

    def postpone(self, region: Region) -> bool:
        """It waits behind all others, and what lies in it comes in meanwhile. False where it did
        so before, or nothing else waits then."""
        if region.signature in self._last:
            return False
        self._last.add(region.signature)
        self.put_back(region.signature)
        if not self._waiting:
            return False
        self._wait(region)
        return True

    def decided(self, signature: str, found: bool | None) -> None:
        """Nothing about it is open. `found` None: nobody looked, and nothing comes in for it."""
        self._closed.add(signature)
        self._open.subtract(self._models.pop(signature, ()))
        if signature in self._waiting:
            self._leave(signature)
        if found is not None:
            for region in self._order.answered(signature, found):
                self._take_in(region)

    def _take_in(self, region: Region) -> None:
        """It is new, or has other uses than before."""
        signature = region.signature
        if signature in self._closed:
            return
        is_new = signature not in self._models
        self._open.subtract(self._models.get(signature, ()))
        self._models[signature] = frozenset(use.model for use in region.uses)
        self._open.update(self._models[signature])
        if is_new and self._is_known(region):
            self._known.add(signature)
        if is_new or signature in self._waiting:
            self._wait(region)

    def _wait(self, region: Region) -> None:
        signature = region.signature
        if signature in self._waiting:
            self._leave(signature)
        self._pushed += 1
        self._waiting[signature] = (self._pushed, region)
        self._score += region.score
        worth = region.score / max(self._seconds(region), 1.0)
        is_last, is_new = signature in self._last, signature not in self._known
        heapq.heappush(self._queue, (is_last, is_new, -worth, signature, self._pushed))

    def _leave(self, signature: str) -> Region:
        _, region = self._waiting.pop(signature)
        self._score -= region.score
        return region


LEAST_S = 20.0
"""A draft is not begun with less."""
ROOM = 3.0
"""A draft may take so many times what it is thought to take, where that is within a third of what
is left."""
MOST_TURNS_MORE = 2
"""So often a region goes on that its part of the budget has ended without a kernel."""
ENDED_UNDER_WAY = "the night was ended in the middle of it"
"""Why a job of an earlier call was lost, until it is taken up again."""
HELD_KERNELS = 256
"""Kernels that several models share are not read again for each; all of them would be too many."""


class PutBack(NamedTuple):
    """A job that its part of the budget ended before it had a kernel, and its answer as it is."""

    job: KernelJob
    answer: KernelDone


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
    put_back: dict[str, str] = field(default_factory=dict)
    """By signature why, of regions that go on at the end of the night, or went on."""
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
        self._later: deque[PutBack] = deque()
        self._took = KnownSeconds(self.kernel_store)
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
                self._take_up(job)
                self.changed()
                return job
            self._apply(job, known)

    def done(self, job: Job, answer: Answer) -> None:
        """Keep the answer, then act on it."""
        self.kernel_store.save_job(job.key, job.kind, answer.model_dump_json())
        if isinstance(job, CutJob) and isinstance(answer, CutDone):
            self._cuts.keep(job, answer)
        if isinstance(job, KernelJob) and job.known is None and isinstance(answer, KernelDone):
            self._took.keep(job, answer)
        self._apply(job, answer)
        self.changed()

    def lost(self, job: Job, why: str, again: int) -> None:
        """Its worker was lost."""
        why = f"{why}; {_continuation(job)}"
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
        return self._next_kernel(work) or self._next_again() or self._next_end_to_end(work)

    def _merged(self) -> RegionQueue:
        """The regions of all models, once the last of them is cut."""
        weights = {part.model.name: part.model.weight for part in self.question.parts}
        # In the zoo's order, not in that of the answers: the same night has the same table.
        cuts = tuple(self.cuts[name] for name in self._parts if name in self.cuts)
        merged = self.ranking.merge(cuts, weights)
        self.regions = {item.signature: item for item in merged}
        self._uses = uses_by_model(merged)
        order = self.ranking.order(merged)
        self._list = RegionQueue(
            order, lambda region: self._known.is_known(self._key(region)), self._draft_s
        )
        return self._list

    def _draft_s(self, region: Region) -> float:
        """Seconds that a draft of `region` takes: those of an earlier night, or a guess."""
        known = self._took.of(self._key(region))
        return self.ranking.seconds(region, self.gpu is None) if known is None else known

    def _next_again(self) -> KernelJob | None:
        """Once nothing else waits, what was put back goes on where it stopped, the cheapest for its
        gain first; without time left its answer stands."""
        while self._later:
            job, answer = self._later.popleft()
            left = self.left_s() or 0.0
            share = left * self.question.workers / (1 + len(self._later))
            more = job.evolve(again=job.again + 1, budget_s=max(min(share, left), 1.0))
            if left >= LEAST_S or self.kernel_store.job(more.key) is not None:
                return more
            self._settle(job, answer)
        return None

    def _next_kernel(self, work: RegionQueue) -> KernelJob | None:
        while (region := work.take()) is not None:
            job = self._kernel_job(region, work)
            if job.known is not None or self.kernel_store.job(job.key) is not None:
                return job
            refused = self._refuse(job)
            if refused is not None:
                self._decide(region, refused)
            elif not self._is_too_long(job) or not work.postpone(region):
                return job
        return None

    def _is_too_long(self, job: KernelJob) -> bool:
        """True where its part of the budget is thought to end it without a kernel."""
        return job.budget_s is not None and self._draft_s(job.region) > job.budget_s

    def _kernel_job(self, region: Region, work: RegionQueue) -> KernelJob:
        turn = self._setbacks.turn(region.signature)
        left = self.left_s()
        budget = None
        if left is not None:
            # So many jobs at a time share the wall time that is left.
            seconds = max(left, 0.0) * self.question.workers
            share = self.ranking.budget(region, work.rest, seconds)
            needed = min(ROOM * self._draft_s(region), MOST_OF_THE_REST * seconds)
            budget = min(max(share, needed), max(left, 1.0))
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
            reason = "the budget was spent before it"
            return RegionOutcome(status="unreached", reason=reason, cut_short=True)
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
        uses, cut = self._uses.get(part.model.name, []), self.cuts[part.model.name]
        outcomes = ((item, self.decided.get(item.signature)) for item in uses)
        able = [item for item, found in outcomes if found is not None and found.sha256 is not None]
        for use, signature in placements(able):
            found = self.decided[signature]
            kernel = self._kernel(found.job, signature, found.sha256)
            if kernel is not None:
                kernels[use.path], parameters[use.path] = kernel, use.parameters
        return EndToEndJob(
            night=self.question.night,
            part=part,
            target=self.question.settings.target,
            cut=cut,
            kernels=kernels,
            parameters=parameters,
            no_whole=missing_whole(cut, uses, self.decided),
            cut_short="" if kernels else time_over(uses, self.decided),
        )

    def _take_up(self, job: Job) -> None:
        """Say what becomes of a job that an earlier call was ended in the middle of."""
        for index, lost in enumerate(self.lost_jobs):
            if lost.job == job.name and lost.why == ENDED_UNDER_WAY:
                why = f"{ENDED_UNDER_WAY}; {_continuation(job)}"
                self.lost_jobs[index] = lost.evolve(why=why)

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
            self.kernel_store.verified(answer.kernel.sha256, now())
        elif answer.kernel is not None and answer.status in ("new", "retuned"):
            live = Path(job.runs) / answer.kernel.run / LIVE
            self.kernel_store.put(
                answer.kernel, live=live if live.is_file() else None, night=job.night
            )
        elif answer.status == "withdrawn":
            self._withdraw(job, answer)
            return
        elif answer.resumable and self._list is not None and job.again < MOST_TURNS_MORE:
            self._later.append(PutBack(job, answer))
            self._later = deque(sorted(self._later, key=self._turn_of))
            self._list.put_back(job.region.signature)
            self.put_back.setdefault(job.region.signature, answer.reason)
            return
        self._settle(job, answer)

    def _turn_of(self, item: PutBack) -> tuple[int, float]:
        """What went on least often comes first, then what saves most for a second."""
        region = item.job.region
        return item.job.again, -region.score / max(self._draft_s(region), 1.0)

    def _settle(self, job: KernelJob, answer: KernelDone) -> None:
        if answer.status == "kept":
            self._known.remember(job, answer, now())
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


def _continuation(job: Job) -> str:
    """How a job goes on that was lost: a draft where its run stopped, if it had begun one."""
    if isinstance(job, KernelJob) and job.known is None and run_folders(Path(job.runs)):
        return "went on from the run folder"
    return "begun again"


def _use_for(region: Region, known: Kernel | None) -> RegionUse | None:
    """The use on which a kernel is drafted, or a `known` one judged: its operands' names count."""
    if known is None:
        return region.uses[0]
    return next((use for use in region.uses if use.parameters == known.parameters), None)
