"""How the library's file is opened by several processes, and what becomes of a damaged one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from agentkernel.domain.errors import LibraryError, one_line
from agentkernel.nightly.library.salvage import salvage
from agentkernel.nightly.library.schema import (
    ERROR_TEXTS,
    check,
    connect,
    read_head,
    refuse_foreign,
    writing,
)
from agentkernel.storage.database import (
    IN_USE_S,
    UNREADABLE,
    Damage,
    finish_replacing,
    is_damage,
    marker_of,
    new_of,
    replace_damaged,
)
from agentkernel.storage.folders import data_folder

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
