"""What does a teacher say holds right kernels back, asked once each and kept as it comes?"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentkernel.agents.models.factory import ModelProvider, record_name
from agentkernel.agents.models.ledger import Account, totals
from agentkernel.agents.models.local_presets import PREFIX
from agentkernel.agents.models.options import ChatOptions, packaged_options
from agentkernel.agents.models.prices import unpriced
from agentkernel.agents.reviewer import Reviewer, sectioned_review
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, SettingError, TrainingError, UnknownTarget
from agentkernel.domain.exchange import Exchange, Reply
from agentkernel.domain.target import Target
from agentkernel.storage.atomic import make_folder
from agentkernel.storage.records import Records
from agentkernel.tools.targets import find_target
from agentkernel.training.data.gathering import ScratchRows
from agentkernel.training.data.review_choice import ReviewCandidate, Show, gather_rows, reviewable
from agentkernel.training.data.review_file import ReviewFile, review_file
from agentkernel.training.data.review_pool import concurrent_answers
from agentkernel.training.data.sources import Origin, TeacherReview
from agentkernel.training.data.tasks import speed_facts
from agentkernel.training.training import DataSettings, JudgedKernel

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
    return counted.model_copy(
        update={
            "unpriced": unpriced(named.priced_as) if priceless else None,
            "seconds": round(time.monotonic() - begun_s, 3),
        }
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
        bare = exchange.question.model_copy(update={"messages": ()})
        reply = exchange.reply.model_copy(update={"texts": ()})
        self.taken.append(exchange.model_copy(update={"question": bare, "reply": reply}))
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


__all__ = [
    "ReviewsReport",
    "Teacher",
    "answers_file",
    "ask_about",
    "is_readable_review",
    "make_reviews",
]
