"""SQLite files: transactions, detection of damage, salvage of rows, replacement of a file."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.storage.files import explain_os_error, lock_open_file, open_append, refuse_strange

CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file may raise: a message that quotes a broken name is no UTF-8."""
SIDE_FILES = ("-wal", "-shm")
LOCK, USE = ".lock", ".use"
"""Suffixes of the files that who opens a database holds alone, and who has it open with others."""
OPENING_S = 120.0
"""How long another process may take to open the file, which mends it where it is damaged."""
IN_USE_S = 10.0
"""How long a damaged file may still be held by a process that is about to end."""
STEP = 500
"""Rows that are read at once of a damaged file; where that fails, one by one."""
HIGHEST_ROW = 10**9
"""A higher number was never given out: it is damage itself."""
UNKNOWN_ROWS = 5_000_000
SMALLEST_ROW_BYTES = 40
"""Both bound how many rows are asked for where the highest number cannot be read."""
Row = tuple[object, ...]
IsolationLevel = Literal["DEFERRED"] | None
"""Who begins a transaction: Python before a change, or nobody but us."""
Whole = Callable[[dict[str, object]], bool]
"""Whether a row of a damaged file, by its columns, is as it was written."""
Writing = Callable[[Path], AbstractContextManager[None]]
"""Turns a failed write to a path into the store's own OutputError."""


class Damage(sqlite3.DatabaseError):
    """What the file says cannot be: found by us, not by SQLite."""


@dataclass(frozen=True)
class DatabaseMessages:
    """How the user hears of one kind of file. Each message names the path after `name`.

    `place` is what must be writable, `elsewhere` what to name where it is not; `error` is raised
    for damage and for a file in use.
    """

    name: str
    place: str
    elsewhere: str
    error: type[AgentKernelError]

    def writing(self, path: Path) -> AbstractContextManager[None]:
        """Turn a failed write to `path` into one clear OutputError; damage is passed on as it
        is."""
        return explain_os_error(path, self._cannot_write)

    @contextmanager
    def using(self, path: Path) -> Iterator[None]:
        """As `writing`; damage met on the way is remembered, so that the next opening mends it."""
        try:
            with self.writing(path):
                yield
        except UNREADABLE as error:
            if not is_damage(error):
                raise
            with self.writing(path):
                open_append(marker_of(path)).close()
            raise self.error(
                f"The {self.name} {str(path)!r} is damaged: {one_line(error, 120)}. Expected a "
                "whole file. Next: run the command again, it saves what can be read into a new "
                "file."
            ) from error

    def opening(self, path: Path) -> AbstractContextManager[None]:
        """Be the only process that opens `path`."""
        return self._alone(path, LOCK, OPENING_S, "being opened by another process")

    def mending(self, path: Path, wait_s: float = IN_USE_S) -> AbstractContextManager[None]:
        """Be the only process that uses `path`, which is damaged."""
        return self._alone(path, USE, wait_s, "damaged and in use by another process")

    def in_use(self, path: Path) -> IO[bytes]:
        """The lock that says, until it is closed, that somebody uses `path`."""
        with self.writing(path):
            file = open_append(path.with_name(f"{path.name}{USE}"))
            fcntl.flock(file, fcntl.LOCK_SH)
        return file

    @contextmanager
    def _alone(self, path: Path, suffix: str, wait_s: float, state: str) -> Iterator[None]:
        busy = self.error(
            f"The {self.name} {str(path)!r} is {state}. Expected one that nobody uses. "
            "Next: end that process and run this again."
        )
        with self.writing(path):
            file = open_append(path.with_name(f"{path.name}{suffix}"))
        with file:
            with self.writing(path):
                lock_open_file(file, busy, wait_s)
            yield

    def _cannot_write(self, path: Path, problem: str, full: bool) -> str:
        mend = "make room" if full else f"make room or name {self.elsewhere}"
        if "read-only" in problem.lower():
            mend = f"name {self.elsewhere}"
        if "locked" in problem:
            mend = "end the process that holds it"
        return (
            f"Cannot write the {self.name} {str(path)!r}: {one_line(problem, 120)}. Expected a "
            f"{self.place} that can be written, with room left; what was saved before is kept. "
            f"Next: {mend}, then go on."
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; waits for another writer as long as the connection's timeout says."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        # A failed write may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def text_of(data: bytes) -> str:
    """A connection's `text_factory`. Raises Damage for what is no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Damage("a text is no UTF-8") from error


def is_damage(error: Exception) -> bool:
    """Whether the file itself is at fault."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, Damage | UnicodeDecodeError) or (
        code is not None and (code & 0xFF) in CORRUPT_CODES
    )


def marker_of(path: Path) -> Path:
    """The file that says that damage was met in `path` since it was opened."""
    return path.with_name(f"{path.name}.damaged")


def new_of(path: Path) -> Path:
    """Where the file is made that is to take the place of `path`."""
    return path.with_name(f"{path.name}.new")


def replace_damaged(path: Path, writing: Writing) -> Path:
    """Set `path` aside, with its side files, and put `new_of(path)` in its place. Answers where the
    old one lies now.

    A kill or a full disk at any moment leaves the old file or the new one, whole.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    with writing(path):
        path.replace(aside)
        for suffix in SIDE_FILES:
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    finish_replacing(path, writing)
    return aside


def finish_replacing(path: Path, writing: Writing) -> None:
    """Put a new file in the place of one that is set aside; drop an unfinished one."""
    new = new_of(path)
    with writing(path):
        if new.exists() and not path.exists():
            for suffix in SIDE_FILES:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            new.replace(path)
            marker_of(path).unlink(missing_ok=True)
        for suffix in ("", *SIDE_FILES):
            new.with_name(new.name + suffix).unlink(missing_ok=True)


def connect(
    path: Path, *, linked: bool = False, isolation: IsolationLevel = None, timeout: float = 5.0
) -> sqlite3.Connection:
    """Open `path` to write, made where it is missing. Raises OSError where it or a file that SQLite
    keeps beside it is none: SQLite follows a link there and writes. A link to the database itself
    is what the user wants where `linked`."""
    _refuse_strange(path, linked)
    return sqlite3.connect(
        path, timeout=timeout, isolation_level=isolation, check_same_thread=False
    )


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """`path` for reading alone. On a disk that is read-only SQLite cannot open a journal that a
    killed writer left: there a copy is read."""
    _refuse_strange(path, linked=True)
    try:
        connection = _connect_to_read(path, "mode=ro")
        connection.execute("pragma schema_version").fetchone()
    except sqlite3.OperationalError:
        with tempfile.TemporaryDirectory(prefix="agentkernel-") as folder:
            copy = Path(folder) / path.name
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(path.with_name(path.name + suffix), f"{copy}{suffix}")
            with contextlib.closing(_connect_to_read(copy, "mode=rw")) as connection:
                yield connection
        return
    with contextlib.closing(connection):
        yield connection


def reading_damaged(path: Path, table: str) -> sqlite3.Connection | None:
    """The damaged `path` with its journal if `table` can be read so, else without it; None: neither
    way."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = _connect_to_read(path, options)
        # So SQLite looks into a file that is shorter than its head says.
        connection.execute("pragma writable_schema = on")
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            connection.execute(f"select 1 from {table} where rowid = 0").fetchone()
        except UNREADABLE:
            connection.close()
        else:
            return connection
    return None


def require_columns(connection: sqlite3.Connection, schema: str) -> None:
    """Raises Damage where a table of the script `schema` lacks one of its columns."""
    for table, columns in _columns(schema).items():
        found = {str(row[1]) for row in connection.execute(f"pragma table_info({table})")}
        if missing := columns - found:
            raise Damage(f"{table} is without {', '.join(sorted(missing))}")


@functools.cache
def _columns(schema: str) -> dict[str, set[str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.executescript(schema)
        rows = made.execute(
            "select m.name, c.name from sqlite_schema m, pragma_table_info(m.name) c"
        )
        columns: dict[str, set[str]] = {}
        for table, column in rows.fetchall():
            columns.setdefault(str(table), set()).add(str(column))
    return columns


def copy_rows(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    table: str,
    whole: Whole,
    file_bytes: int,
) -> int:
    """Copy each row of `table` that can be read of a damaged file and is `whole`; how many were.

    `file_bytes`, its size, bounds how many rows are asked for.
    """
    columns = _shared_columns(source, target, table)
    names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
    copied = 0
    with transaction(target):
        for row in _rows(source, table, names, file_bytes):
            if whole(dict(zip(columns, row, strict=True))):
                with contextlib.suppress(sqlite3.IntegrityError):
                    target.execute(f"insert into {table} ({names}) values ({marks})", row)
                    copied += 1
    return copied


def _refuse_strange(path: Path, linked: bool) -> None:
    refuse_strange(path, linked=linked)
    # SQLite keeps them beside the file that a link leads to.
    real = path.resolve() if linked else path
    for suffix in (*SIDE_FILES, "-journal"):
        refuse_strange(real.with_name(real.name + suffix))


def _connect_to_read(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _shared_columns(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str
) -> Sequence[str]:
    """Those of the new table that a file of an older format has too."""
    query = f"pragma table_info({table})"
    columns = [str(row[1]) for row in target.execute(query)]
    try:
        known = {str(row[1]) for row in source.execute(query)}
    except UNREADABLE:
        return columns
    return [name for name in columns if name in known] or columns


def _rows(source: sqlite3.Connection, table: str, names: str, file_bytes: int) -> Iterator[Row]:
    query = f"select {names} from {table} where rowid between ? and ?"
    for first in range(1, _last_row(source, table, file_bytes) + 1, STEP):
        try:
            yield from source.execute(query, (first, first + STEP - 1)).fetchall()
        except UNREADABLE:
            for number in range(first, first + STEP):
                with contextlib.suppress(*UNREADABLE):
                    yield from source.execute(query, (number, number)).fetchall()


def _last_row(source: sqlite3.Connection, table: str, file_bytes: int) -> int:
    try:
        source.execute(f"select 1 from {table} where rowid = 0").fetchone()
    except UNREADABLE:
        return 0
    try:
        found = source.execute(f"select max(rowid) from {table}").fetchone()[0]
    except UNREADABLE:
        return min(UNKNOWN_ROWS, file_bytes // SMALLEST_ROW_BYTES)
    return min(int(found or 0), HIGHEST_ROW)
