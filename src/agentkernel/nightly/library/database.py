"""SQLite file of the library: schema, migrations, opening, and salvage of a damaged file.

Several processes use the file at once. A damaged one is replaced by a new one that holds each
row that can still be read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from agentkernel.domain.errors import LibraryError, one_line
from agentkernel.storage import sqlite
from agentkernel.storage.files import data_folder, refuse_strange
from agentkernel.storage.sqlite import (
    IN_USE_S,
    UNREADABLE,
    Damage,
    DatabaseMessages,
    copy_rows,
    finish_replacing,
    is_damage,
    marker_of,
    new_of,
    reading_damaged,
    replace_damaged,
    text_of,
    transaction,
)

ERROR_TEXTS = DatabaseMessages("library", "file", "another file with --library", LibraryError)
writing, using = ERROR_TEXTS.writing, ERROR_TEXTS.using
APPLICATION = 0x616B6C62
"""SQLite's application_id: tells a library from the database of another program."""
MAGIC = b"SQLite format 3\0"
HEAD_BYTES = 100
"""SQLite's file header (https://sqlite.org/fileformat2.html, 1.3): user_version at 60,
application_id at 68, both big-endian."""
BUSY_S = 60.0
"""How long a writer waits for another one; a night of 80,000 regions holds the file for seconds."""
CHECKED_BYTES = 32 * 2**20
"""A file up to this size is read through whenever it is opened (about 0.1 s)."""

VERSION_1 = (
    "create table certificates (sha256 text not null unique, value text not null)",
    """create table kernels (
        id integer primary key, sha256 text not null, signature text not null, gpu text not null,
        torch text not null, triton text not null, precision text not null, dtype text not null,
        problem text not null, source text not null, parameters text not null,
        certificate text not null references certificates (sha256),
        signer text not null, judge_sha256 text not null, run text not null, created text not null,
        basis text not null, speedup real, speedup_low real, time_us real, baseline_us real,
        verified text not null, withdrawn text, withdrawn_at text not null default '',
        unique (sha256, signature, gpu, torch, triton, precision, dtype))""",
    """create index kernels_by_key
        on kernels (signature, gpu, torch, triton, precision, dtype, created)""",
    """create table nights (
        id text not null unique, zoo text not null, started text not null, finished text,
        green integer not null, basis text not null, value text not null)""",
    "create index nights_by_zoo on nights (zoo, started)",
    """create table night_models (
        night text not null references nights (id), number integer not null, name text not null,
        vs_eager real, vs_compile real, estimated real, value text not null,
        unique (night, number))""",
    """create table night_regions (
        night text not null references nights (id), number integer not null,
        signature text not null, status text not null, value text not null,
        unique (night, number))""",
    """create table jobs (
        key text not null unique, kind text not null, value text not null,
        started text not null, finished text not null, worker text not null)""",
)
VERSION_2 = (
    """create table measurements (
        id integer primary key, sha256 text not null, signature text not null, gpu text not null,
        night text not null default '', taken text not null, time_us real, baseline_us real,
        speedup real, speedup_low real)""",
    "create index measurements_by_kernel on measurements (sha256, taken)",
    """insert into measurements
        (sha256, signature, gpu, taken, time_us, baseline_us, speedup, speedup_low)
        select sha256, signature, gpu, created, time_us, baseline_us, speedup, speedup_low
        from kernels where time_us is not null or speedup is not null order by id""",
    "create index night_regions_by_signature on night_regions (signature)",
    "alter table kernels add column strides text not null default '[[], []]'",
)
VERSION_3 = (
    "alter table measurements add column basis text not null default ''",
    """update measurements
        set basis = case when gpu like 'estimated:%' then 'estimated' else 'measured' end""",
)
MIGRATIONS = (VERSION_1, VERSION_2, VERSION_3)
"""The n-th leads from version n to n + 1. One that was released is never changed."""
FORMAT = len(MIGRATIONS)
HIGHEST_FORMAT = 1000
"""A higher number was never given out: the file's head is damaged."""
TABLES = (
    "certificates",
    "kernels",
    "nights",
    "night_models",
    "night_regions",
    "jobs",
    "measurements",
)


class Head(NamedTuple):
    """What the first bytes of a file say."""

    is_sqlite: bool
    format: int = 0
    application: int = 0


def read_head(path: Path) -> Head | None:
    """Read without SQLite, which would write beside the file. None: there is no file, or an empty
    one."""
    try:
        refuse_strange(path, linked=True)
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        return None
    if not head:
        return None
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        return Head(is_sqlite=False)
    return Head(True, int.from_bytes(head[60:64]), int.from_bytes(head[68:72]))


def refuse_foreign(path: Path, head: Head) -> None:
    """Raise LibraryError for a newer format and for the database of another program, Damage for a
    format that nobody ever wrote."""
    if head.application != APPLICATION:
        raise LibraryError(
            f"{str(path)!r} is a database of another program. Expected a library of kernels. "
            "Next: name another file with --library."
        )
    if not 0 <= head.format <= HIGHEST_FORMAT:
        raise Damage(f"format {head.format}")
    if head.format > FORMAT:
        raise LibraryError(
            f"The library {str(path)!r} has format {head.format}. Expected {FORMAT} or older. "
            "Next: upgrade agentkernel, or name another file with --library."
        )


def connect(path: Path) -> sqlite3.Connection:
    """Open `path`, make it complete or not at all, and bring an older one to today's format. Only
    one process may do so at a time.

    Raises one of `UNREADABLE` for a damaged file, LibraryError for one of a newer format or of
    another program, OutputError where it cannot be written.
    """
    with writing(path):
        connection = sqlite.connect(path, linked=True, timeout=BUSY_S)
    connection.text_factory = text_of
    try:
        with writing(path):
            try:
                _prepare(connection, path)
            except sqlite3.OperationalError as error:
                if "file format" in str(error):
                    raise Damage(str(error)) from error
                raise
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    found = _number(connection, "pragma user_version")
    head = Head(True, found, _number(connection, "pragma application_id"))
    if found or _number(connection, "select count(*) from sqlite_master"):
        refuse_foreign(path, head)
    else:
        connection.execute("pragma auto_vacuum = incremental")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    migrate(connection, found)
    connection.execute("pragma foreign_keys = on")


def migrate(connection: sqlite3.Connection, found: int, wanted: int = FORMAT) -> None:
    """From version `found` to `wanted`, each step whole or not at all."""
    for version in range(found, wanted):
        with transaction(connection):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute(f"pragma application_id = {APPLICATION}")
            connection.execute(f"pragma user_version = {version + 1}")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def check(connection: sqlite3.Connection, path: Path, whole: bool) -> None:
    """Read what every use needs, and all of a small file or where `whole` is asked for.

    Raises one of `UNREADABLE` for damage.
    """
    tables = {row[0] for row in connection.execute("select name from sqlite_master")}
    if missing := set(TABLES) - tables:
        raise Damage(f"without {', '.join(sorted(missing))}")
    for table in TABLES:
        connection.execute(f"select max(rowid) from {table}").fetchone()
    if whole or path.stat().st_size <= CHECKED_BYTES:
        answer = connection.execute("pragma quick_check(1)").fetchone()
        if answer != ("ok",):
            raise Damage(one_line(answer[0], 120))


JSON_COLUMNS = ("value", "parameters")


class SalvagedRows(NamedTuple):
    """What is in the new file."""

    kernels: int
    nights: int

    @property
    def words(self) -> str:
        """`4 kernels and 1 night were`, `nothing was`."""
        if not self.kernels and not self.nights:
            return "nothing was"
        return f"{_counted(self.kernels, 'kernel')} and {_counted(self.nights, 'night')} were"


def salvage(path: Path, new: Path) -> SalvagedRows:
    """Copy each row of `path` that can be read, and whose JSON is whole, into a new library.

    A kernel without its certificate, and a model or region without its night, are left behind.
    Raises OutputError where `new` cannot be written.
    """
    with (
        writing(new),
        contextlib.closing(connect(new)) as target,
        contextlib.closing(
            reading_damaged(path, "kernels") or sqlite3.connect(":memory:")
        ) as source,
    ):
        target.execute("pragma foreign_keys = off")
        for table in TABLES:
            copy_rows(source, target, table, _is_whole, path.stat().st_size)
        with transaction(target):
            target.execute(
                "delete from kernels where certificate not in (select sha256 from certificates)"
            )
            for rows in ("night_models", "night_regions"):
                target.execute(f"delete from {rows} where night not in (select id from nights)")
        # What stayed in the journal would be lost with the renaming.
        target.execute("pragma wal_checkpoint(truncate)")
        return SalvagedRows(_count(target, "kernels"), _count(target, "nights"))


def _is_whole(row: dict[str, object]) -> bool:
    return all(_is_json(row[name]) for name in JSON_COLUMNS if name in row)


def _is_json(value: object) -> bool:
    try:
        json.loads(str(value))
    except (ValueError, RecursionError):
        return False
    return True


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"select count(*) from {table}").fetchone()[0])


Say = Callable[[str], None]
FILE_NAME = "library.sqlite"
SUFFIXES = (".sqlite", ".sqlite3", ".db")
"""A file of another name that is no database is somebody's text, not a damaged library."""


class OpenedLibrary(NamedTuple):
    """The connection, and the lock that says that somebody uses the file; `mended` says in one line
    what became of a damaged one."""

    connection: sqlite3.Connection
    in_use: IO[bytes]
    mended: str | None


def default_library() -> Path:
    """The user's own library. Raises SettingError for a user without a home."""
    return data_folder() / FILE_NAME


def open_library(path: Path, say: Say | None = None) -> OpenedLibrary:
    """Open the file at `path`, making it where it is missing.

    A damaged one is set aside, what can be read of it goes into a new one, and `say` gets one line.
    Raises LibraryError for a newer format, another program's file, or damage while another process
    uses it; OutputError where it cannot be written.
    """
    _refuse_others(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with ERROR_TEXTS.opening(path):
        finish_replacing(path, writing)
        # SQLite takes an empty file for a new one.
        with writing(path):
            emptied = path.is_file() and not path.stat().st_size
        try:
            mended, connection = None, _open(path)
        except UNREADABLE as error:
            if not is_damage(error):
                raise
            with ERROR_TEXTS.mending(path, IN_USE_S):
                mended = _replace(path, error)
            connection = _open(path)
        if emptied:
            mended = (
                f"The library {str(path)!r} was a file of 0 bytes: what it held is lost, and a new "
                "one is begun. Next: put a copy in its place, if you have one."
            )
        if mended is not None and say is not None:
            say(mended)
        return OpenedLibrary(connection, ERROR_TEXTS.in_use(path), mended)


def _refuse_others(path: Path) -> None:
    with writing(path):
        head = read_head(path)
    if head is None:
        return
    if head.is_sqlite and (head.format or head.application):
        with contextlib.suppress(Damage):
            refuse_foreign(path, head)
    elif not head.is_sqlite and path.suffix not in SUFFIXES:
        raise LibraryError(
            f"{str(path)!r} is no library of kernels. Expected a file that 'agentkernel batch' "
            f"wrote, or a new one whose name ends in {SUFFIXES[0]}. Next: check --library."
        )


def _open(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    try:
        with writing(path):
            check(connection, path, whole=marker_of(path).exists())
            marker_of(path).unlink(missing_ok=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _replace(path: Path, error: Exception) -> str:
    """Set a damaged file, which nobody else uses, aside and put what can be read in its place.

    A kill or a full disk at any moment leaves the old file or the new one, whole.
    """
    saved = salvage(path, new_of(path))
    aside = replace_damaged(path, writing)
    return (
        f"The library was damaged ({one_line(error, 120)}): {saved.words} saved into a new one, "
        f"the old one is {str(aside)!r}."
    )
