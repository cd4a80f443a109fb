"""What do the package's SQLite files share: transactions, damage, how a file is replaced, and how
its user is told?"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from agentkernel.disk import explaining, hold
from agentkernel.errors import AgentKernelError, one_line

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
Writing = Callable[[Path], AbstractContextManager[None]]
"""Turns a failed write to a path into the store's own OutputError."""


class Damage(sqlite3.DatabaseError):
    """What the file says cannot be: found by us, not by SQLite."""


@dataclass(frozen=True)
class Told:
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
        return explaining(path, self._cannot_write)

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
                marker_of(path).touch()
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

    def in_use(self, path: Path) -> IO[str]:
        """The lock that says, until it is closed, that somebody uses `path`."""
        with self.writing(path):
            file = path.with_name(f"{path.name}{USE}").open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
        return file

    @contextmanager
    def _alone(self, path: Path, suffix: str, wait_s: float, state: str) -> Iterator[None]:
        busy = self.error(
            f"The {self.name} {str(path)!r} is {state}. Expected one that nobody uses. "
            "Next: end that process and run this again."
        )
        with self.writing(path):
            file = path.with_name(f"{path.name}{suffix}").open("a")
        with file:
            with self.writing(path):
                hold(file, busy, wait_s)
            yield

    def _cannot_write(self, path: Path, problem: str, full: bool) -> str:
        mend = "make room" if full else f"make room or name {self.elsewhere}"
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
