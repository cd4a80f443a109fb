"""Queue of submissions in a SQLite file: each is judged once, and keeps its one answer.

A submission is queued, then running, then done. One process uses the file at a time, by several
threads; what was running when it ended is queued again by the next.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Self, cast

from pydantic import ValidationError

from agentkernel.domain.errors import OutputError
from agentkernel.domain.formatting import count
from agentkernel.serving.submission import Answer, Work
from agentkernel.storage.sqlite import Database, copy_rows, reading_damaged, transaction

FILE_NAME = "queue.sqlite"
MOST_ATTEMPTS = 3
"""So often is a submission begun whose worker is lost: more is its own fault."""
LONGEST_RETRY_S = 60
RECENT = 0.1
"""The weight of the last judgement in the mean of their seconds."""
SCHEMA = (
    """create table submissions (
        number integer primary key, id text not null unique, work text not null,
        state text not null check (state in ('queued', 'running', 'done')),
        attempts integer not null default 0, answer text,
        submitted text not null, finished text,
        check ((state = 'done') = (answer is not null)))""",
    "create index submissions_by_state on submissions (state, number)",
)
State = Literal["queued", "running", "done"]


def _examine(connection: sqlite3.Connection, whole: bool, marked: bool) -> None:
    connection.execute("select max(rowid) from submissions").fetchone()


DATABASE = Database(
    name="queue",
    noun="queue of submissions",
    place="folder",
    elsewhere="another folder with --state",
    error=OutputError,
    versions=(SCHEMA,),
    examine=_examine,
    application=0x616B7371,
)


class Ticket(NamedTuple):
    """Where a submission stands. `attempts`: workers that it has lost; `ahead`: how many wait
    before it."""

    id: str
    state: State
    attempts: int
    ahead: int


class Claim(NamedTuple):
    """A submission that somebody works on."""

    id: str
    work: Work
    began: float


class Counts(NamedTuple):
    """How many submissions are in each state."""

    queued: int
    running: int
    done: int


class Queue:
    """The queue in the folder `state`, in which `most` may wait; salvaged where it is damaged, of
    which `mended` tells in a line.

    Raises OutputError where it cannot be written; so does each method that changes it.
    """

    def __init__(self, state: Path, most: int) -> None:
        self.path, self.most = state / FILE_NAME, most
        with DATABASE.opening(self.path):
            self._db, self._in_use, self.mended = DATABASE.open(self.path, _salvage)
        self._changed = threading.Condition()
        self._ended = False
        self._mean_s = 1.0
        self.release()

    def submit(self, work: Work) -> Ticket | None:
        """The ticket of `work`, also where it was submitted before; None where the queue is
        full."""
        with self._writing() as db:
            known = self._ticket(work.id)
            if known is not None:
                return known
            if self._counts().queued >= self.most:
                return None
            db.execute(
                "insert into submissions (id, work, state, submitted) values (?, ?, 'queued', ?)",
                (work.id, work.model_dump_json(), _now()),
            )
            self._changed.notify()
            return self._ticket(work.id)

    def ticket(self, id: str) -> Ticket | None:  # noqa: A002 - the word of the interface
        """Where the submission stands; None for one that nobody made."""
        with self._changed, DATABASE.using(self.path):
            return self._ticket(id)

    def answer(self, id: str) -> str | None:  # noqa: A002 - the word of the interface
        """An Answer in JSON; None where there is none yet."""
        with self._changed, DATABASE.using(self.path):
            row = self._db.execute("select answer from submissions where id = ?", (id,)).fetchone()
        return None if row is None else row[0]

    def counts(self) -> Counts:
        """How many are in each state."""
        with self._changed, DATABASE.using(self.path):
            return self._counts()

    def claim(self, *, wait: bool = True) -> Claim | None:
        """The oldest that waits, which runs from now on. None once the queue is closed; without
        `wait` also where none waits."""
        with self._changed:
            while not self._ended:
                claim = self._claim()
                if claim is not None or not wait:
                    return claim
                self._changed.wait()
        return None

    def finish(self, claim: Claim, answer: Answer) -> None:
        """Keep its one answer."""
        self._mean_s += RECENT * (time.monotonic() - claim.began - self._mean_s)
        with self._writing():
            self._finish(claim.id, answer)

    def lost(self, claim: Claim, why: str) -> None:
        """Its worker is gone: it waits again, behind the others, or the loss is its answer."""
        with self._writing() as db:
            db.execute(
                "update submissions set state = 'queued', attempts = attempts + 1, "
                "number = (select max(number) + 1 from submissions) "
                "where id = ? and state = 'running'",
                (claim.id,),
            )
            ticket = self._ticket(claim.id)
            if ticket is not None and ticket.attempts >= MOST_ATTEMPTS:
                self._finish(claim.id, Answer(error=f"not judged in {MOST_ATTEMPTS} tries: {why}"))
            self._changed.notify()

    def release(self) -> None:
        """What runs waits again: nobody works on it."""
        with self._writing() as db:
            db.execute("update submissions set state = 'queued' where state = 'running'")

    def end(self) -> None:
        """Whoever waits for a claim gets none, now or later."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether no claim is given any more."""
        return self._ended

    def retry_after_s(self, workers: int) -> int:
        """Seconds after which a place in a full queue may be free."""
        return max(1, min(LONGEST_RETRY_S, math.ceil(self._mean_s / workers)))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        self._in_use.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._changed, DATABASE.using(self.path), transaction(self._db):
            yield self._db

    def _claim(self) -> Claim | None:
        query = "select id, work from submissions where state = 'queued' order by number limit 1"
        while True:
            with self._writing() as db:
                row = db.execute(query).fetchone()
                if row is None:
                    return None
                name = str(row[0])
                db.execute("update submissions set state = 'running' where id = ?", (name,))
                try:
                    return Claim(name, Work.model_validate_json(row[1]), time.monotonic())
                except ValidationError:
                    again = "submitted to another version of agentkernel. Next: submit it again."
                    self._finish(name, Answer(error=again))

    def _finish(self, name: str, answer: Answer) -> None:
        """Only what has no answer yet gets one."""
        self._db.execute(
            "update submissions set state = 'done', answer = ?, finished = ? "
            "where id = ? and state != 'done'",
            (answer.model_dump_json(), _now(), name),
        )

    def _ticket(self, name: str) -> Ticket | None:
        query = "select state, attempts, number from submissions where id = ?"
        row = self._db.execute(query, (name,)).fetchone()
        if row is None:
            return None
        ahead = 0
        if row[0] == "queued":
            before = "select count(*) from submissions where state = 'queued' and number < ?"
            ahead = int(self._db.execute(before, (row[2],)).fetchone()[0])
        return Ticket(name, cast(State, row[0]), int(row[1]), ahead)

    def _counts(self) -> Counts:
        query = "select state, count(*) from submissions group by state"
        found = dict(self._db.execute(query).fetchall())
        return Counts(found.get("queued", 0), found.get("running", 0), found.get("done", 0))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _salvage(path: Path, new: Path) -> str:
    """Copy the submissions that can be read into a new file; `4 submissions were`."""
    with (
        DATABASE.writing(new),
        contextlib.closing(DATABASE.connect(new)) as target,
        contextlib.closing(reading_damaged(path, "submissions")) as source,
    ):
        copied = copy_rows(source, target, "submissions", _is_whole, path.stat().st_size)
        # What stayed in the journal would be lost with the renaming.
        target.execute("pragma wal_checkpoint(truncate)")
    return f"{count(copied, 'submission')} were"


def _is_whole(row: dict[str, object]) -> bool:
    try:
        for name in ("work", "answer"):
            json.loads(str(row[name] or "null"))
    except (ValueError, RecursionError):
        return False
    return True
