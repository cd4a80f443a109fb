"""SQLite files: opening, formats, transactions, detection of damage, salvage of rows."""

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
from itertools import chain
from pathlib import Path
from typing import IO, Literal, NamedTuple

from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.storage.files import explain_os_error, lock_open_file, open_append, refuse_strange

CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file may raise: a message that quotes a broken name is no UTF-8."""
SIDE_FILES = ("-wal", "-shm")
LOCK, USE = ".lock", ".use"
"""Suffixes of the files that who opens a database holds alone, and who has it open with others."""
OPENING_S = 120.0
"""How long another process may take to open the file, which fixes it where it is damaged."""
IN_USE_S = 10.0
"""How long a damaged file may still be held by a process that is about to end."""
STEP = 500
"""Rows that are read at once of a damaged file; where that fails, one by one."""
HIGHEST_ROW = 10**9
"""A higher number was never given out: it is damage itself."""
HIGHEST_FORMAT = 1000
"""A higher number of a format was never given out: the file's head is damaged."""
BUSY_S = 60.0
"""How long a writer waits for another one; a large batch holds the file for seconds."""
CHECKED_BYTES = 32 * 2**20
"""A file up to this size is read through whenever it is opened (about 0.1 s)."""
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


Salvage = Callable[[Path, Path], str]
"""Puts what can be read of a damaged file into a new one; answers what, as `4 kernels were`."""
Examine = Callable[[sqlite3.Connection, bool, bool], None]
"""Reads what every use of a file needs, more where the first flag asks for the whole file; the
second: damage was met in it since it was opened. Raises Damage."""


class OpenedDatabase(NamedTuple):
    """The connection, and the lock that says that somebody uses the file; `mended` says in one line
    what became of a damaged one."""

    connection: sqlite3.Connection
    in_use: IO[bytes]
    mended: str | None


@dataclass(frozen=True)
class Database:
    """One kind of file that several processes use: its tables, its checks, and how the user hears
    of it. Each message names the path after `name`.

    `noun` is the file in a sentence, `place` what must be writable, `elsewhere` what to name where
    it is not; `error` is raised for damage, for a file in use, and for one of a newer format. The
    n-th of `versions` leads from format n to n + 1; one that was released is never changed.
    `application` is SQLite's application_id. `linked`: the user may name a link to the file.
    """

    name: str
    noun: str
    place: str
    elsewhere: str
    error: type[AgentKernelError]
    versions: tuple[tuple[str, ...], ...]
    examine: Examine
    application: int = 0
    linked: bool = False
    vacuum: str = "none"
    """SQLite's auto_vacuum."""

    def writing(self, path: Path) -> AbstractContextManager[None]:
        """Turn a failed write to `path` into one clear OutputError; damage is passed on as it
        is."""
        return explain_os_error(path, self._cannot_write)

    @contextmanager
    def using(self, path: Path) -> Iterator[None]:
        """As `writing`; damage met on the way is remembered, so that the next opening fixes it."""
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

    @contextmanager
    def opening(self, path: Path) -> Iterator[None]:
        """Be the only process that opens `path`; what a killed one was replacing is finished."""
        with self._alone(path, LOCK, OPENING_S, "being opened by another process"):
            finish_replacing(path, self.writing)
            yield

    def open(self, path: Path, salvage: Salvage, begin: str = "") -> OpenedDatabase:
        """Within `opening`: the file, made where it is missing, checked, and where it is damaged
        replaced by a new one. `begin` is executed in a new one.

        Raises OutputError where it cannot be written, and `error` for a newer format, or damage
        while another process uses the file.
        """
        mended = None
        try:
            connection = self._checked(path, begin)
        except UNREADABLE as error:
            if not is_damage(error):
                raise
            with self._alone(path, USE, IN_USE_S, "damaged and in use by another process"):
                saved = salvage(path, new_of(path))
                aside = replace_damaged(path, self.writing)
            mended = (
                f"The {self.noun} was damaged ({one_line(error, 120)}): {saved} saved into a new "
                f"one, the old one is {str(aside)!r}."
            )
            connection = self._checked(path)
        with self.writing(path):
            in_use = open_append(path.with_name(f"{path.name}{USE}"))
            fcntl.flock(in_use, fcntl.LOCK_SH)
        return OpenedDatabase(connection, in_use, mended)

    def connect(self, path: Path, begin: str = "") -> sqlite3.Connection:
        """Open `path`, make it complete or not at all, and bring an older one to today's format.
        Only one process may do so at a time.

        Raises one of `UNREADABLE` for a damaged file and what `open` raises.
        """
        with self.writing(path):
            connection = connect(path, linked=self.linked, timeout=BUSY_S)
            connection.text_factory = text_of
            try:
                self._prepare(connection, path, begin)
            except BaseException as error:
                connection.close()
                if isinstance(error, sqlite3.OperationalError) and "file format" in str(error):
                    raise Damage(str(error)) from error
                raise
        return connection

    def refuse_foreign(self, path: Path, version: int, application: int) -> None:
        """Raise `error` for a newer format and for the database of another program, Damage for a
        format that nobody ever wrote."""
        if self.application not in (0, application):
            raise self.error(
                f"{str(path)!r} is a database of another program. Expected a {self.noun}. "
                f"Next: name {self.elsewhere}."
            )
        if not 0 <= version <= HIGHEST_FORMAT:
            raise Damage(f"format {version}")
        if version > len(self.versions):
            raise self.error(
                f"The {self.name} {str(path)!r} has format {version}. Expected "
                f"{len(self.versions)} or older. Next: upgrade agentkernel, or name "
                f"{self.elsewhere}."
            )

    def _prepare(self, connection: sqlite3.Connection, path: Path, begin: str) -> None:
        found = _number(connection, "pragma user_version")
        tables = _number(connection, "select count(*) from sqlite_master")
        if found or tables:
            self.refuse_foreign(path, found, _number(connection, "pragma application_id"))
        if tables and not found:
            raise Damage("tables of another program")
        if not tables:
            connection.execute(f"pragma auto_vacuum = {self.vacuum}")
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        for version in range(found, len(self.versions)):
            with transaction(connection):
                for statement in (*self.versions[version], begin):
                    connection.execute(statement)
                begin = ""
                connection.execute(f"pragma application_id = {self.application}")
                connection.execute(f"pragma user_version = {version + 1}")
        connection.execute("pragma foreign_keys = on")

    def _checked(self, path: Path, begin: str = "") -> sqlite3.Connection:
        connection = self.connect(path, begin)
        try:
            with self.writing(path):
                marked = marker_of(path).exists()
                whole = marked or path.stat().st_size <= CHECKED_BYTES
                require_columns(connection, ";".join(chain.from_iterable(self.versions)))
                if whole:
                    check_pages(connection)
                self.examine(connection, whole, marked)
                marker_of(path).unlink(missing_ok=True)
        except BaseException:
            connection.close()
            raise
        return connection

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


def check_pages(connection: sqlite3.Connection) -> None:
    """Raises Damage, or what SQLite raises, where the file is not whole."""
    (answer,) = connection.execute("pragma quick_check(1)").fetchone() or ("no answer",)
    if answer != "ok":
        raise Damage(one_line(answer, 120))


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


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


def reading_damaged(path: Path, table: str) -> sqlite3.Connection:
    """The damaged `path` with its journal if `table` can be read so, else without it; a database
    without tables: neither way."""
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
    return sqlite3.connect(":memory:")


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


def damaged_rows(
    source: sqlite3.Connection, table: str, names: str, file_bytes: int
) -> Iterator[Row]:
    """The columns `names` of each row of `table` that can be read of a damaged file, in order."""
    query = f"select {names} from {table} where rowid between ? and ?"
    for first in range(1, _last_row(source, table, file_bytes) + 1, STEP):
        try:
            yield from source.execute(query, (first, first + STEP - 1)).fetchall()
        except UNREADABLE:
            for number in range(first, first + STEP):
                with contextlib.suppress(*UNREADABLE):
                    yield from source.execute(query, (number, number)).fetchall()


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
        for row in damaged_rows(source, table, names, file_bytes):
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
