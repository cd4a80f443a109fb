"""Which job is next, given what is known; and what did the night come to in the end?"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.night import Lost, ModelRow, RegionStatus
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.domain.settings import Settings
from agentkernel.tools.library.rows import OTHER_CERTIFICATE, OTHER_SOURCE
from agentkernel.tools.nights.withdrawn import SINCE
from agentkernel.workflows.nights.jobs import (
    Answer,
    CutDone,
    CutJob,
    Job,
    JobFailed,
    KernelDone,
    KernelJob,
    Part,
    WholeDone,
    WholeJob,
    asked_of,
    read_answer,
)

BROKEN = (OTHER_SOURCE, OTHER_CERTIFICATE)
"""Why the library itself refuses a kernel that nobody has withdrawn yet."""
LEAST_S = 20.0
"""A draft is not begun with less."""
NOTHING = "nothing"
"""Kind of the record that says that a region's search found nothing."""


class Books(Protocol):
    """What is asked of the library."""

    def find(self, key: KernelKey) -> Kernel | None: ...
    def kernels(self, *, signature: str | None = None) -> tuple[Kernel, ...]: ...
    def put(self, kernel: Kernel) -> None: ...
    def withdraw(self, sha256: str, why: str) -> object: ...
    def verified(self, sha256: str, when: str) -> object: ...
    def job(self, key: str) -> str | None: ...
    def save_job(self, key: str, kind: str, value_json: str) -> None: ...


@dataclass(frozen=True)
class Ranking:
    """How regions become an order of work, and what each may cost."""

    merge: Callable[[Sequence[ModelCut], Mapping[str, float]], tuple[Region, ...]]
    order: Callable[[Sequence[Region], Mapping[str, bool]], tuple[Region, ...]]
    budget: Callable[[Region, Sequence[Region], float], float]


class Question(Frozen):
    """What a night is to do. `settings.runs` holds the runs of its drafts.

    `budget_s`: wall seconds of all of it, of which `reserve` (a share) is kept for the models'
    end-to-end figures; None: no limit. `gpu`: the one that measures, None where none does.
    `torch` and `triton` are versions, as in a KernelKey.
    """

    night: str
    parts: tuple[Part, ...]
    target: str
    settings: Settings
    gpu: str | None
    torch: str
    triton: str
    workers: int = 1
    budget_s: float | None = None
    reserve: float = 0.15


class Decided(Frozen):
    """What became of a region."""

    status: RegionStatus
    reason: str = ""
    kernel: Kernel | None = None
    parent: str | None = None
    run: str | None = None
    seconds: float = 0.0


class Nothing(Frozen):
    """A search that found nothing: not worth doing again with the same versions and less time."""

    when: str
    reason: str
    budget_s: float | None
    limited: bool


def ignore_change() -> None:
    """Nothing."""


@dataclass
class Agenda:
    """The jobs of one night. `spent_s` is the wall time of earlier calls of the same night.

    Answers are on the books as soon as they are known; a job that is answered there is not given
    out again. `changed` is called after each change.
    """

    question: Question
    books: Books
    ranking: Ranking
    spent_s: float = 0.0
    changed: Callable[[], None] = ignore_change
    clock: Callable[[], float] = time.monotonic
    cuts: dict[str, ModelCut] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] | None = None
    decided: dict[str, Decided] = field(default_factory=dict)
    rows: dict[str, ModelRow] = field(default_factory=dict)
    lost_jobs: list[Lost] = field(default_factory=list)
    running: dict[str, Job] = field(default_factory=dict)
    seconds: float = 0.0
    gpu: str | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._parts = {part.model.name: part for part in self.question.parts}
        self._to_cut = deque(self.question.parts)
        self._order: tuple[Region, ...] = ()
        self._drafts: deque[Region] = deque()
        self._open: Counter[str] = Counter()
        """How many regions of each model are undecided."""
        self._models: dict[str, frozenset[str]] = {}
        """The models of each undecided region: a later order may choose other uses of it."""
        self._turns: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        self._causes: dict[str, str] = {}
        self._wholes: deque[Part] = deque(self.question.parts)
        self.gpu = self.question.gpu

    # What an engine asks and tells.

    def take(self) -> Job | None:
        """The next job that nobody has answered; None where there is none for now."""
        while True:
            job = self._next()
            if job is None:
                return None
            self.running[job.key] = job
            known = self._known(job)
            if known is None:
                self.changed()
                return job
            self._apply(job, known)

    def done(self, job: Job, answer: Answer) -> None:
        """Keep the answer, then act on it."""
        self.books.save_job(job.key, job.kind, answer.model_dump_json())
        self._apply(job, answer)
        self.changed()

    def lost(self, job: Job, why: str, again: int) -> None:
        """Its worker was lost."""
        self.lost_jobs.append(Lost(job=job.name, why=why, again=again))
        self.changed()

    # What the night is at.

    @property
    def wall_s(self) -> float:
        """Wall seconds of this night, in all calls together."""
        return self.spent_s + self.clock() - self._began

    @property
    def order(self) -> tuple[Region, ...]:
        """The regions that are worked on, the most promising first."""
        return self._order

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
        if self.regions is None:
            weights = {part.model.name: part.model.weight for part in self.question.parts}
            # In the zoo's order, not in that of the answers: the same night has the same table.
            cuts = tuple(self.cuts[name] for name in self._parts if name in self.cuts)
            self.regions = self.ranking.merge(cuts, weights)
            self._rank()
        return self._next_kernel() or self._next_whole()

    def _rank(self) -> None:
        """The order of work anew; what has a known kernel comes first, for it costs little."""
        found = {
            name: item.kernel is not None
            for name, item in self.decided.items()
            if item.status != "unreached"
        }
        self._order = self.ranking.order(self.regions or (), found)
        waiting = [item for item in self._order if self._waits(item)]
        known = {item.signature for item in waiting if self._find(item) is not None}
        self._drafts = deque(sorted(waiting, key=lambda item: item.signature not in known))
        self._models = {
            item.signature: frozenset(use.model for use in item.uses)
            for item in self._order
            if item.signature not in self.decided
        }
        self._open = Counter(name for models in self._models.values() for name in models)

    def _waits(self, region: Region) -> bool:
        return region.signature not in self.decided and not any(
            isinstance(job, KernelJob) and job.region.signature == region.signature
            for job in self.running.values()
        )

    def _next_kernel(self) -> KernelJob | None:
        while self._drafts:
            region = self._drafts.popleft()
            job = self._kernel_job(region)
            if self.books.job(job.key) is not None or job.known is not None:
                return job
            refused = self._refuse(region, job)
            if refused is None:
                return job
            self._decide(region, refused)
        return None

    def _kernel_job(self, region: Region) -> KernelJob:
        turn = self._turns.setdefault(region.signature, 1)
        left = self.left_s()
        budget = None
        if left is not None:
            waiting = (region, *self._drafts)
            # So many jobs at a time share the wall time that is left.
            share = self.ranking.budget(region, waiting, max(left, 0.0) * self.question.workers)
            budget = min(share, max(left, 1.0))
        settings = self.question.settings
        known = self._find(region) if turn == 1 else None
        use = _use_for(region, known)
        if use is None:  # it was made for operands of other names: it cannot be judged here
            use, known = region.uses[0], None
        parent = self._parents.get(region.signature)
        if known is None and parent is None:
            parent = self._earlier(region)
        return KernelJob(
            night=self.question.night,
            part=self._parts[use.model],
            region=region,
            use=use,
            key_of_kernel=self._key(region),
            known=known,
            parent=parent,
            turn=turn,
            settings=settings,
            budget_s=budget,
            runs=f"{settings.runs}/{region.signature}-{turn}",
        )

    def _refuse(self, region: Region, job: KernelJob) -> Decided | None:
        """Why no draft is begun; None where one is."""
        left = self.left_s()
        if left is not None and left < LEAST_S:
            return Decided(status="unreached", reason="the budget was spent before it")
        text = self.books.job(self._nothing_key(region))
        if text is None or job.turn > 1:
            return None
        try:
            known = Nothing.model_validate_json(text)
        except ValidationError:
            return None
        more = job.budget_s is None or (
            known.budget_s is not None and job.budget_s > 1.5 * known.budget_s
        )
        if known.limited and more:
            return None
        reason = f"nothing was found on {known.when[:10]} with the same versions: {known.reason}"
        return Decided(status="kept", reason=reason)

    def _next_whole(self) -> WholeJob | None:
        """A model about whose regions nothing is open."""
        for _ in range(len(self._wholes)):
            part = self._wholes.popleft()
            name = part.model.name
            if name in self.errors:
                continue
            if self._open[name] == 0:
                return self._whole_job(part)
            self._wholes.append(part)
        return None

    def _whole_job(self, part: Part) -> WholeJob:
        placed = placements(part.model.name, self.regions or (), self.decided)
        return WholeJob(
            night=self.question.night,
            part=part,
            target=self.question.settings.target,
            cut=self.cuts[part.model.name],
            kernels={use.path: kernel for use, kernel in placed},
            parameters={use.path: use.parameters for use, _ in placed},
        )

    # How an answer is taken in.

    def _known(self, job: Job) -> Answer | None:
        text = self.books.job(job.key)
        if text is None:
            return None
        try:
            return read_answer(text)
        except ValidationError:  # an older version's: it is done again
            return None

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
                failed = Decided(
                    status="failed", reason=answer.error, parent=parent, seconds=answer.seconds
                )
                self._decide(job.region, failed)
            case WholeJob(), WholeDone():
                self.rows[job.part.model.name] = answer.row
            case _, JobFailed():
                self.errors[job.part.model.name] = answer.error
            case _:
                self.errors[job.part.model.name] = f"a {job.kind} job came back as {answer.kind}"

    def _take_in(self, job: KernelJob, answer: KernelDone) -> None:
        """What a region's job found goes into the library; all of it may be done twice."""
        region, known = job.region, job.known
        signature = region.signature
        if answer.status == "reused" and answer.kernel is not None:
            self.books.verified(answer.kernel.sha256, _now())
        elif answer.kernel is not None and answer.status in ("new", "retuned"):
            self.books.put(answer.kernel)
        elif answer.status == "withdrawn":
            # Asked again after a kill, the library gives it out no more.
            sha256 = known.sha256 if known is not None else job.parent
            if answer.kernel is not None:
                sha256 = answer.kernel.sha256
            if sha256 is not None:
                # The night in the reason tells it from what nobody has withdrawn yet.
                self.books.withdraw(sha256, f"{answer.reason} (night {job.night})")
                self._parents[signature] = sha256
            self._causes[signature] = answer.reason
            self._turns[signature] = job.turn + 1
            self._drafts.append(region)
            return
        elif answer.status == "kept":
            nothing = Nothing(
                when=_now(),
                reason=answer.reason,
                budget_s=job.budget_s,
                limited=answer.limited,
            )
            self.books.save_job(self._nothing_key(region), NOTHING, nothing.model_dump_json())
        self._decide(
            region,
            Decided(
                status=answer.status,
                reason=answer.reason,
                kernel=answer.kernel,
                parent=None if answer.status == "reused" else job.parent,
                run=answer.run,
                seconds=answer.seconds,
            ),
        )

    def _decide(self, region: Region, what: Decided) -> None:
        cause = self._causes.get(region.signature)
        if cause is not None:
            # The morning must hear of it, whatever came after.
            after = f"{SINCE}{what.status}"
            after += f" ({what.reason})" if what.reason else ""
            what = what.model_copy(
                update={
                    "status": "withdrawn",
                    "reason": f"{cause}{after}",
                    "parent": self._parents.get(region.signature),
                }
            )
        self.decided[region.signature] = what
        self._open.subtract(self._models.pop(region.signature, ()))
        if what.kernel is None and region.parts and what.status != "unreached":
            self._rank()

    def _find(self, region: Region) -> Kernel | None:
        """The known kernel; one that was changed in the library comes too, to be withdrawn."""
        key = self._key(region)
        found = self.books.find(key)
        if found is not None:
            return found
        same = [item for item in self._relatives(region) if _same(item.key, key)]
        return next((item for item in reversed(same) if item.withdrawn in BROKEN), None)

    def _earlier(self, region: Region) -> str | None:
        """The newest kernel's that held with other versions, or on another GPU."""
        key = self._key(region)
        others = [item for item in self._relatives(region) if not _same(item.key, key)]
        valid = [item.sha256 for item in others if item.withdrawn is None]
        return valid[-1] if valid else None

    def _relatives(self, region: Region) -> tuple[Kernel, ...]:
        return self.books.kernels(signature=region.signature)

    def _key(self, region: Region) -> KernelKey:
        asked = self.question
        return KernelKey(
            signature=region.signature,
            gpu=self.gpu if self.gpu is not None else f"estimated:{asked.target}",
            torch=asked.torch,
            triton=asked.triton,
            precision=asked.settings.goals.precision,
        )

    def _nothing_key(self, region: Region) -> str:
        words = self._key(region).model_dump_json() + asked_of(self.question.settings)
        return f"{NOTHING}:{sha256_text(words)[:32]}"


def placements(
    model: str, regions: Sequence[Region], decided: Mapping[str, Decided]
) -> tuple[tuple[RegionUse, Kernel], ...]:
    """Which submodule of `model` gets which kernel: none within another that has one."""
    able = [
        (use, found.kernel)
        for region in regions
        if (found := decided.get(region.signature)) is not None and found.kernel is not None
        for use in region.uses
        if use.model == model
    ]
    chosen: list[tuple[RegionUse, Kernel]] = []
    for use, kernel in sorted(able, key=lambda item: (item[0].path.count("."), item[0].path)):
        if not any(nested(use.path, other.path) for other, _ in chosen):
            chosen.append((use, kernel))
    return tuple(chosen)


def nested(one: str, other: str) -> bool:
    """True where one of two submodules lies in the other, or they are the same."""
    if "" in (one, other) or one == other:
        return True
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _use_for(region: Region, known: Kernel | None) -> RegionUse | None:
    """The use on which a kernel is drafted, or a `known` one judged: its operands' names count."""
    if known is None:
        return region.uses[0]
    return next((use for use in region.uses if use.parameters == known.parameters), None)


def _same(one: KernelKey, other: KernelKey) -> bool:
    return one.model_dump() == other.model_dump()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
