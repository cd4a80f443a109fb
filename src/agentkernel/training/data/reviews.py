"""Reviews of correct kernels by a teacher model.

Each kernel is asked about once, several at a time, and each answer is kept as it comes. The
file of reviews grows by whole lines; a line that a kill left incomplete is cut off.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Literal, NamedTuple

from pydantic import ValidationError

from agentkernel.agents.models.costs import Account, totals, unpriced
from agentkernel.agents.models.local_presets import PREFIX
from agentkernel.agents.models.protocol import ChatOptions, packaged_options
from agentkernel.agents.models.provider import ModelProvider, record_name
from agentkernel.agents.reviewer import Reviewer, sectioned_review
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, SettingError, TrainingError, UnknownTarget
from agentkernel.domain.exchange import Exchange, Reply
from agentkernel.domain.target import Target
from agentkernel.storage.files import (
    explain_write_failure,
    hold_file_lock,
    make_folder,
)
from agentkernel.storage.records import Records
from agentkernel.tools.targets import find_target
from agentkernel.training.data.conversations import slower_kernels, speed_facts
from agentkernel.training.data.rows import RIGHT, module_objection, row_objection
from agentkernel.training.data.sources import (
    Origin,
    ScratchRows,
    TeacherReview,
    UnreadableRow,
    read_origin,
)
from agentkernel.training.settings import DataSettings, JudgedKernel, Show

EVERY = 100


class ReviewCandidate(NamedTuple):
    """A kernel that could be reviewed; they sort in the order in which they are."""

    later: bool
    """No faster kernel is known: nothing is taught with its review yet."""
    rank: int
    """Of the module's slower kernels, the slowest first: every module comes before any twice."""
    problem: str
    kernel: str


def gather_rows(
    origins: Sequence[Origin], licences: Sequence[str], folder: Path, show: Show
) -> ScratchRows:
    """The rows that data could be made of: nobody else's code is sent, and nothing twice."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".reviews-") as scratch:
        # Its name goes at once, its pages when it is closed: a kill leaves nothing behind.
        gathered = ScratchRows(Path(scratch) / "gathered.sqlite")
    try:
        done = 0
        for origin in origins:
            for row in read_origin(origin):
                if isinstance(row, UnreadableRow) or row.label == "not-judged":
                    continue
                if row_objection(row, licences) is None and module_objection(row.problem) is None:
                    gathered.add(row)
                done += 1
                if done % EVERY == 0:
                    show(done, None, "kernels read")
    except BaseException:
        gathered.close()
        raise
    return gathered


def reviewable(gathered: ScratchRows, *, everything: bool = False) -> list[ReviewCandidate]:
    """The right kernels with a profile, each text once, in the order in which they are asked about:
    those that have a faster one, then, where `everything` is wanted, the others."""
    found: list[ReviewCandidate] = []
    for name, _, rows in gathered.problems():
        right = [row for row in rows if row.label in RIGHT]
        ranks = {item.slow.sha256: rank for rank, item in enumerate(slower_kernels(right))}
        for row in right:
            rank = ranks.get(row.sha256)
            if "time" in row.facts and (rank is not None or everything):
                found.append(ReviewCandidate(rank is None, rank or 0, name, row.sha256))
    first: dict[str, ReviewCandidate] = {}
    for place in sorted(found):
        first.setdefault(place.kernel, place)
    return list(first.values())


BEGIN = b'{"kernel_sha256":'
"""How every line that is written here begins."""
KEPT = {"kernel_sha256", "by", "text"}
BUSY_S = 5.0


@dataclass
class ReviewFile:
    """A file that this process alone writes. `known`: the kernels that it has a review of."""

    path: Path
    known: set[str]
    _file: IO[bytes]

    def add(self, review: TeacherReview) -> None:
        """Append a line, on disk when this returns. Raises OutputError."""
        with explain_write_failure(self.path):
            self._file.write(review.model_dump_json(include=KEPT).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self.known.add(review.kernel_sha256)


@contextmanager
def review_file(path: Path) -> Iterator[ReviewFile]:
    """The file at `path`, made where none is; a last line that was spoiled is cut off.

    Raises TrainingError where it holds something else or another process writes it, OutputError.
    """
    busy = TrainingError(
        f"Another process writes {str(path)!r}. Expected to be the only one. Next: wait for it, or "
        "choose another --out."
    )
    with hold_file_lock(path, busy, BUSY_S) as file:
        with explain_write_failure(path):
            known = _healed(file, path)
        yield ReviewFile(path, known, file)


def _healed(file: IO[bytes], path: Path) -> set[str]:
    """The kernels that whole lines are about; nothing is cut from a file that is not ours."""
    known: set[str] = set()
    end = 0
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            if line.strip():
                known.add(TeacherReview.model_validate_json(line).kernel_sha256)
        except ValidationError as error:
            ours = bool(known) or line.startswith(BEGIN) or BEGIN.startswith(line)
            if file.read(1) or not ours:
                raise TrainingError(
                    f"{str(path)!r} holds no reviews: line {number} is none. Expected a new file, "
                    "or one of this command. Next: choose another --out."
                ) from error
            file.truncate(end)
            return known
        end += len(line)
        if not line.endswith(b"\n"):
            file.write(b"\n")  # the line's end alone was lost
    return known


def concurrent_answers(
    rows: Iterator[JudgedKernel], ask: Callable[[JudgedKernel], Reply], jobs: int
) -> Iterator[tuple[JudgedKernel, Reply | ModelUnavailable]]:
    """Each row with its answer as it comes, `jobs` asked at a time; rows are taken from the
    caller's thread, one for every answer. Whatever else `ask` raises is raised."""
    asked: SimpleQueue[JudgedKernel | None] = SimpleQueue()
    told: SimpleQueue[tuple[JudgedKernel, Reply | BaseException]] = SimpleQueue()

    def work() -> None:
        while (row := asked.get()) is not None:
            try:
                told.put((row, ask(row)))
            except BaseException as error:  # noqa: BLE001 - raised again where rows come from
                told.put((row, error))

    for _ in range(jobs):
        # Nobody who interrupts waits for an answer.
        threading.Thread(target=work, daemon=True, name="teacher").start()
    under_way = 0
    try:
        while True:
            while under_way < jobs and (row := next(rows, None)) is not None:
                asked.put(row)
                under_way += 1
            if not under_way:
                return
            row, said = told.get()
            under_way -= 1
            if isinstance(said, BaseException) and not isinstance(said, ModelUnavailable):
                raise said
            yield row, said
    finally:
        for _ in range(jobs):
            asked.put(None)


Outcome = Literal["kept", "without-sections", "cut-off"]
SUFFIX = ".jsonl"
MOST_IN_VAIN = 3
"""Questions without an answer, one after the other, after which the teacher is not there."""


@dataclass(frozen=True)
class Teacher:
    """Who is asked, and how much. `spec` is `chat:PROVIDER:MODEL[@URL]` or `local:PATH`.

    `count` kernels are asked about at most, those of earlier calls among them; no more is asked
    once the known costs of all calls together are `usd`. `everything`: also about kernels of which
    no faster one is known.
    """

    spec: str
    base_url: str | None = None
    count: int | None = None
    usd: float | None = None
    jobs: int = 4
    everything: bool = False
    options: ChatOptions = field(default_factory=packaged_options)


class ReviewsReport(Frozen):
    """What one call of `make_reviews` came to. Of `kernels` that could be asked about, the file had
    `known`; the others were kept, came to nothing for the reasons named, or are left."""

    kernels: int
    known: int
    asked: int
    """Questions that the teacher was put in this call."""
    kept: int
    without_sections: int
    cut_off: int
    """Answers that end in the middle."""
    unanswered: int
    left: int
    """Kernels that the money was not enough for."""
    taken: Account
    """What the teacher took in all calls for this file."""
    unpriced: str | None = None
    """How its model gets a price, where it has none."""
    seconds: float


def make_reviews(
    origins: Sequence[Origin],
    teacher: Teacher,
    out: Path,
    *,
    licences: Sequence[str] = DataSettings().licences,
    show: Show = lambda done, total, words: None,
) -> ReviewsReport:
    """Append to `out` (JSON lines of TaughtReview) what `teacher` says of right kernels that have a
    profile, those first that a faster kernel is taught with.

    A line is whole or not there; all answers, with what they cost, are kept in the database beside
    it (`answers_file`). After a kill at any moment the next call goes on and asks nothing twice. A
    kernel that `make_data` would leave out under `licences` is never sent.

    Raises SettingError, TrainingError for a file that is none of reviews or where there is nothing
    to ask about, ModelUnavailable where the teacher does not answer, OutputError.
    """
    _check(teacher, out)
    named = record_name(teacher.spec, teacher.base_url)
    begun_s = time.monotonic()
    make_folder(out.parent)
    with closing(gather_rows(origins, licences, out.parent, show)) as gathered:
        chosen = reviewable(gathered, everything=teacher.everything)[: teacher.count]
        if not chosen:
            raise TrainingError(_nothing(origins, everything=teacher.everything))
        with review_file(out) as file:
            try:
                with closing(Records(answers_file(out))) as records:
                    counted = _ReviewCall(teacher, records, gathered, file, chosen, show).ask()
            except sqlite3.DatabaseError as error:
                raise TrainingError(
                    f"The answers {str(answers_file(out))!r} cannot be read: {error}. Expected the "
                    "database of this command. Next: remove it; the reviews stay."
                ) from error
    taken = counted.taken
    priceless = taken.unpriced and not teacher.spec.startswith(PREFIX)
    return counted.evolve(
        unpriced=unpriced(named.priced_as) if priceless else None,
        seconds=round(time.monotonic() - begun_s, 3),
    )


def answers_file(out: Path) -> Path:
    """Where all answers for `out` are kept, readable or not."""
    return out.with_suffix(".sqlite")


def _check(teacher: Teacher, out: Path) -> None:
    if out.suffix != SUFFIX:
        raise SettingError(
            f"--out {str(out)!r} is no name for reviews. Expected one that ends in {SUFFIX}. Next: "
            f"--out {out.with_suffix(SUFFIX)}"
        )
    for name, value in (("--jobs", teacher.jobs), ("--count", teacher.count)):
        if value is not None and value < 1:
            raise SettingError(f"{name} is {value}. Expected 1 or more. Next: leave it out.")


@dataclass
class _ReviewCall:
    """One call's questions."""

    teacher: Teacher
    records: Records
    gathered: ScratchRows
    file: ReviewFile
    chosen: Sequence[ReviewCandidate]
    show: Show
    taken: list[Exchange] = field(default_factory=list)
    """Without their words, as there are many."""
    spent_usd: float = 0.0
    counts: dict[Outcome, int] = field(default_factory=dict)
    unanswered: int = 0
    in_vain: int = 0
    gone: bool = False
    error: ModelUnavailable | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self) -> ReviewsReport:
        """Raises ModelUnavailable, with what came before it kept."""
        for exchange in self.records.exchanges():
            self._take(exchange)
        before = len(self.taken)
        todo = [item for item in self.chosen if item.kernel not in self.file.known]
        known, done = len(self.chosen) - len(todo), 0
        teacher = self.teacher
        desk = ModelProvider(
            records=self.records,
            base_url=teacher.base_url,
            options=teacher.options,
            on_exchange=self._heard,
        )
        reviewer = Reviewer(desk.model(teacher.spec), desk.sampling(teacher.spec))
        try:
            for row, said in concurrent_answers(
                self._rows(todo), lambda row: ask_about(row, reviewer), teacher.jobs
            ):
                self._keep(row, said, reviewer.model.name)
                done += 1
                self.show(known + done, len(self.chosen), f"{self.counts.get('kept', 0)} kept")
        finally:
            desk.close()
        if self.error and (self.gone or not self.counts):
            # The words are those of a run, which has a command of its own to go on with.
            words = str(self.error).replace("'agentkernel resume'", "the same command")
            raise ModelUnavailable(words) from self.error
        return ReviewsReport(
            kernels=len(self.chosen),
            known=known,
            asked=len(self.taken) - before,
            kept=self.counts.get("kept", 0),
            without_sections=self.counts.get("without-sections", 0),
            cut_off=self.counts.get("cut-off", 0),
            unanswered=self.unanswered,
            left=len(todo) - done,
            taken=totals(self.taken).total,
            seconds=0.0,
        )

    def _rows(self, todo: Sequence[ReviewCandidate]) -> Iterator[JudgedKernel]:
        for place in todo:
            usd = self.teacher.usd
            if self.gone or (usd is not None and self.spent_usd >= usd):
                return
            yield self.gathered.kernel(place.problem, place.kernel)

    def _keep(self, row: JudgedKernel, said: Reply | ModelUnavailable, by: str) -> None:
        if isinstance(said, ModelUnavailable):
            self.unanswered += 1
            self.in_vain += 1
            self.gone = self.gone or self.in_vain >= MOST_IN_VAIN
            self.error = said
            return
        self.in_vain = 0
        outcome = is_readable_review(said)
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if outcome == "kept":
            self.file.add(TeacherReview(kernel_sha256=row.sha256, by=by, text=said.texts[0]))

    def _heard(self, exchange: Exchange, reused: bool) -> None:
        if not reused:
            with self._lock:
                self._take(exchange)

    def _take(self, exchange: Exchange) -> None:
        bare = exchange.question.evolve(messages=())
        reply = exchange.reply.evolve(texts=())
        self.taken.append(exchange.evolve(question=bare, reply=reply))
        self.spent_usd += exchange.cost_usd or 0.0


def ask_about(row: JudgedKernel, reviewer: Reviewer) -> Reply:
    """What the teacher says of a right kernel whose row has a profile. Raises ModelUnavailable."""
    candidate = Candidate(source=row.kernel, coder=row.coder, round=1, strategy=row.strategy)
    return reviewer.ask(candidate, speed_facts(row), _target(row.target))


def is_readable_review(reply: Reply) -> Outcome:
    """Whether an answer says something in the sections that were asked for."""
    found = sectioned_review(reply.texts[0]) if reply.texts else None
    if found is None or not (found.analysis or found.optimizations):
        return "without-sections"
    return "kept" if reply.finish[0] == "stop" else "cut-off"


def _target(name: str | None) -> Target | None:
    try:
        return None if name is None else find_target(name).target
    except UnknownTarget:
        return None


def _nothing(origins: Sequence[Origin], *, everything: bool) -> str:
    names = ", ".join(repr(str(item.path)) for item in origins)
    expected = (
        "right kernels with times" if everything else "kernels of which a faster one is known"
    )
    return (
        f"Nothing to review in {names}. Expected {expected}. Next: 'agentkernel train pairs' "
        f"makes some{'' if everything else ', or --all asks about every kernel'}."
    )
