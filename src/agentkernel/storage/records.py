"""The records of a run: one SQLite file, keyed by content."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.errors import one_line
from agentkernel.domain.exchange import Exchange
from agentkernel.domain.plan import Retrieved
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.files import explain_write_failure, refuse_strange
from agentkernel.storage.sqlite import (
    UNREADABLE,
    Damage,
    check_pages,
    connect,
    copy_rows,
    is_damage,
    new_of,
    reading,
    reading_damaged,
    replace_damaged,
    require_columns,
    text_of,
)

Task = Literal["draft", "judge", "profile"]
F = TypeVar("F", bound=Frozen)
RETRIEVED = TypeAdapter(tuple[Retrieved, ...])

SCHEMA = """
create table if not exists candidates (
    sha256 text primary key, round integer not null, value text not null);
create table if not exists drafts (key text primary key, value text not null);
create table if not exists judgements (
    key text primary key, candidate text not null, value text not null);
create table if not exists profiles (
    key text primary key, candidate text not null, value text not null);
create table if not exists exchanges (
    key text primary key, agent text not null, round integer not null, value text not null);
create table if not exists retrieved (id integer primary key check (id = 1), value text not null);
create table if not exists silences (key text primary key, text text not null);
create table if not exists executions (
    id integer primary key, task text not null, key text not null, pid integer not null,
    finished integer not null default 0);
create table if not exists events (
    seq integer primary key, kind text not null, value text not null);
create table if not exists sessions (
    id integer primary key, pid integer not null, seconds real not null default 0);
create table if not exists losses (id integer primary key, text text not null);
"""
MEMORY = ":memory:"


def _validated(kind: type[Frozen]) -> Callable[[str], object]:
    return kind.model_validate_json


VALUES: dict[str, Callable[[str], object]] = {
    "candidates": _validated(Candidate),
    "drafts": _validated(Draft),
    "judgements": _validated(Verdict),
    "profiles": _validated(Profile),
    "exchanges": _validated(Exchange),
    "retrieved": RETRIEVED.validate_json,
}
"""What reads the column `value` of a table."""
TABLES = (*VALUES, "silences", "executions", "events", "sessions", "losses")


class Execution(NamedTuple):
    """One time that a task was really run (not looked up), and whether it came to its end."""

    task: str
    key: str
    finished: bool


class Records:
    """The tables of `run.sqlite`. Every method is one transaction."""

    def __init__(self, path: Path, connection: sqlite3.Connection | None = None) -> None:
        """Open or create `path`, or use the `connection` to what was read of it. Raises
        sqlite3.DatabaseError where it is no database."""
        self.path = path
        self._lock = threading.Lock()
        self._session: int | None = None
        with explain_write_failure(path):
            self._db = connection or _connect(path)
            self._db.execute("pragma journal_mode=wal")
            self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file; a second call does nothing. Whoever asks later gets ProgrammingError."""
        with self._lock:  # SQLite dies where it is closed while another thread is in it
            self._db.close()

    def check(self) -> None:
        """Read the file through. Raises one of `UNREADABLE` where it is damaged."""
        check_pages(self._db)
        require_columns(self._db, SCHEMA)
        for table in TABLES:
            rows = self._db.execute(f"select * from {table}")
            names = [column[0] for column in rows.description]
            for row in rows:
                if not _is_whole(table, dict(zip(names, row, strict=True))):
                    raise Damage(f"a row of {table} is not as it was written")

    def losses(self) -> tuple[str, ...]:
        """What was lost of the file, and when that was seen: a line each."""
        rows = self._db.execute("select text from losses order by id").fetchall()
        return tuple(str(row[0]) for row in rows)

    def lost(self, line: str) -> None:
        """Note what was lost, for whoever opens the file from now on."""
        with explain_write_failure(self.path), self._lock:
            self._db.execute("insert into losses (text) values (?)", (line,))

    def draft(self, key: str) -> Draft | None:
        """The draft stored under `key`."""
        return self._load(Draft, "select value from drafts where key=?", key)

    def save_draft(self, key: str, draft: Draft) -> None:
        """Keep a draft, and its candidate."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            self._db.execute(
                "insert or replace into drafts values (?,?)", (key, draft.model_dump_json())
            )
            self._finish("draft", key)
            if draft.candidate is not None:
                self._put_candidate(draft.candidate)

    def verdict(self, key: str) -> Verdict | None:
        """The finished judgement stored under `key`."""
        return self._load(Verdict, "select value from judgements where key=?", key)

    def save_verdict(self, key: str, verdict: Verdict) -> None:
        """Keep a judgement and mark its execution finished, in one transaction."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            self._db.execute(
                "insert or replace into judgements values (?,?,?)",
                (key, verdict.candidate, verdict.model_dump_json()),
            )
            self._finish("judge", key)

    def profile(self, key: str) -> Profile | None:
        """The profile stored under `key`."""
        return self._load(Profile, "select value from profiles where key=?", key)

    def save_profile(self, key: str, profile: Profile) -> None:
        """Keep a profile and mark its execution finished, in one transaction."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            self._db.execute(
                "insert or replace into profiles values (?,?,?)",
                (key, profile.candidate, profile.model_dump_json()),
            )
            self._finish("profile", key)

    def exchange(self, key: str) -> Exchange | None:
        """What a model answered to the question with this key."""
        return self._load(Exchange, "select value from exchanges where key=?", key)

    def save_exchange(self, key: str, exchange: Exchange) -> None:
        """Keep what a model answered, in one transaction; a first answer is never replaced."""
        question = exchange.question
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute(
                "insert or ignore into exchanges values (?,?,?,?)",
                (key, question.agent, question.round, exchange.model_dump_json()),
            )

    def silence(self, key: str) -> str | None:
        """Why a model gave no answer to the question with this key, where nothing else came."""
        with self._lock:
            row = self._db.execute("select text from silences where key=?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def save_silence(self, key: str, text: str) -> None:
        """Keep why a model gave no answer: a replay is to go the same way."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("insert or replace into silences values (?,?)", (key, text))

    def exchanges(self) -> tuple[Exchange, ...]:
        """All that models were asked and answered, in order."""
        rows = self._db.execute("select value from exchanges order by rowid").fetchall()
        return tuple(Exchange.model_validate_json(row[0]) for row in rows)

    def save_retrieved(self, found: Sequence[Retrieved]) -> None:
        """Keep what the run was given to read: a knowledge base goes on, and a replay asks what
        was asked."""
        value = RETRIEVED.dump_json(tuple(found)).decode()
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("insert or replace into retrieved values (1,?)", (value,))

    def retrieved(self) -> tuple[Retrieved, ...] | None:
        """What the run was given to read; None where it came to no retrieval."""
        row = self._db.execute("select value from retrieved").fetchone()
        return None if row is None else RETRIEVED.validate_json(row[0])

    def started(self, task: Task, key: str) -> None:
        """Note that `task` is now really run for `key`."""
        with explain_write_failure(self.path), self._lock:
            self._db.execute(
                "insert into executions (task, key, pid) values (?,?,?)", (task, key, os.getpid())
            )

    def executions(self, task: Task | None = None) -> tuple[Execution, ...]:
        """Every real run of a task, in order."""
        rows = self._db.execute("select task, key, finished from executions order by id")
        found = (Execution(str(row[0]), str(row[1]), bool(row[2])) for row in rows.fetchall())
        return tuple(item for item in found if task is None or item.task == task)

    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates in the order in which they were drafted."""
        rows = self._db.execute("select value from candidates order by round, rowid").fetchall()
        return tuple(Candidate.model_validate_json(row[0]) for row in rows)

    def drafts(self) -> tuple[Draft, ...]:
        """All drafts in order, with the losers of their searches."""
        rows = self._db.execute("select value from drafts order by rowid").fetchall()
        return tuple(Draft.model_validate_json(row[0]) for row in rows)

    def verdicts(self) -> tuple[Verdict, ...]:
        """All finished judgements in order."""
        rows = self._db.execute("select value from judgements order by rowid").fetchall()
        return tuple(Verdict.model_validate_json(row[0]) for row in rows)

    def profiles(self) -> tuple[Profile, ...]:
        """All profiles in order."""
        rows = self._db.execute("select value from profiles order by rowid").fetchall()
        return tuple(Profile.model_validate_json(row[0]) for row in rows)

    def add_event(self, kind: str, value: str) -> None:
        """Append an event as JSON text."""
        with explain_write_failure(self.path), self._lock:
            self._db.execute("insert into events (kind, value) values (?,?)", (kind, value))

    def events(self) -> tuple[str, ...]:
        """The events of all sessions in order, as JSON texts."""
        rows = self._db.execute("select value from events order by seq").fetchall()
        return tuple(str(row[0]) for row in rows)

    def spend(self, seconds: float) -> None:
        """Note that this session has lasted `seconds` so far."""
        with explain_write_failure(self.path), self._lock:
            if self._session is None:
                cursor = self._db.execute("insert into sessions (pid) values (?)", (os.getpid(),))
                self._session = cursor.lastrowid
            self._db.execute("update sessions set seconds=? where id=?", (seconds, self._session))

    def last_pid(self) -> int | None:
        """The process of the newest session, None where none was noted."""
        row = self._db.execute("select pid from sessions order by id desc limit 1").fetchone()
        return None if row is None else int(row[0])

    def spent_before(self) -> float:
        """Wall seconds of the earlier sessions together."""
        row = self._db.execute(
            "select coalesce(sum(seconds), 0) from sessions where id is not ?", (self._session,)
        ).fetchone()
        return float(row[0])

    def _put_candidate(self, candidate: Candidate) -> None:
        self._db.execute(
            "insert or ignore into candidates values (?,?,?)",
            (candidate.sha256, candidate.round, candidate.model_dump_json()),
        )

    def _finish(self, task: Task, key: str) -> None:
        self._db.execute(
            "update executions set finished=1 where id="
            "(select max(id) from executions where task=? and key=?)",
            (task, key),
        )

    def _load(self, kind: type[F], query: str, key: str) -> F | None:
        with self._lock:
            row = self._db.execute(query, (key,)).fetchone()
        return None if row is None else kind.model_validate_json(row[0])


def _connect(path: Path | str) -> sqlite3.Connection:
    if isinstance(path, str):
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    else:
        connection = connect(path)
    connection.text_factory = text_of
    return connection


def read_records(path: Path) -> Records:
    """What `path` holds, in memory: nothing is written, so it may lie on a read-only disk and
    another process may work on it. `losses` says what could not be read.

    Raises OutputError for a disk that cannot be read.
    """
    connection = _connect(MEMORY)
    with explain_write_failure(path):
        refuse_strange(path)
        if is_empty(path):
            records = Records(path, connection)
            records.lost(gone_words(path))
            return records
        try:
            with reading(path) as source:
                source.backup(connection)
            records = _checked(Records(path, connection))
        except UNREADABLE as error:
            connection.close()
            if not is_damage(error):
                raise
            records = Records(path, _connect(MEMORY))
            kept = _save_rows(path, records)
            records.lost(
                f"{path.name} is damaged ({one_line(error, 120)}): {kept} rows of it can be read. "
                "Next: 'agentkernel resume' saves them into a new file."
            )
    return records


def open_records(path: Path, alone: Callable[[], AbstractContextManager[None]]) -> Records:
    """Open `path` for writing, made where it is missing. What can be read of a damaged file, which
    `alone` keeps others from, goes into a new one, row by row, and the old one is set aside under a
    name of its own; `losses` says so from then on. Raises OutputError, and what `alone` raises."""
    with explain_write_failure(path):
        empty = is_empty(path)
        try:
            records = _checked(Records(path))
        except UNREADABLE as error:
            if not is_damage(error):
                raise
            with alone():
                return _replaced(path, error)
    if empty:
        records.lost(gone_words(path))
    return records


def _checked(records: Records) -> Records:
    try:
        records.check()
    except UNREADABLE:
        records.close()
        raise
    return records


def is_empty(path: Path) -> bool:
    """Whether there is no file, or nothing in it."""
    return not path.exists() or not path.stat().st_size


def gone_words(path: Path) -> str:
    """For a run whose records were there when it was made."""
    return f"{path.name} is gone or empty: of what the run found out only the other files are left."


def _replaced(path: Path, error: Exception) -> Records:
    new = new_of(path)
    new.unlink(missing_ok=True)
    with contextlib.closing(Records(new)) as records:
        kept = _save_rows(path, records)
        # What stayed in the journal would be lost with the renaming.
        records._db.execute("pragma wal_checkpoint(truncate)")
    aside = replace_damaged(path, explain_write_failure)
    records = Records(path)
    records.lost(
        f"{path.name} was damaged ({one_line(error, 120)}): {kept} rows were saved into a new one, "
        f"the old one is {aside.name!r}."
    )
    return records


def _save_rows(path: Path, records: Records) -> int:
    """Copy what can be read of the damaged `path`; how many rows."""
    size = path.stat().st_size
    with contextlib.closing(reading_damaged(path, "candidates")) as source:
        return sum(
            copy_rows(source, records._db, table, partial(_is_whole, table), size)
            for table in TABLES
        )


def _is_whole(table: str, row: dict[str, object]) -> bool:
    """Whether the value can be read, and a candidate's source is the one of its hash."""
    if table not in VALUES:
        return True
    try:
        value = VALUES[table](str(row["value"]))
    except (KeyError, ValidationError):
        return False
    return not isinstance(value, Candidate) or value.sha256 == row.get("sha256")
