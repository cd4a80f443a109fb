"""What do the package's SQLite files share: transactions, damage, and how a file is replaced?"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file may raise: a message that quotes a broken name is no UTF-8."""
SIDE_FILES = ("-wal", "-shm")
Writing = Callable[[Path], AbstractContextManager[None]]
"""Turns a failed write to a path into the store's own OutputError."""


class Damage(sqlite3.DatabaseError):
    """What the file says cannot be: found by us, not by SQLite."""


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
