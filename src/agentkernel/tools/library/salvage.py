"""What can still be read of a damaged library?"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentkernel.database import UNREADABLE, transaction
from agentkernel.tools.library.schema import TABLES, connect, writing

STEP = 500
"""Rows that are read at once; where that fails, one by one."""
HIGHEST_ROW = 10**9
"""A higher number was never given out: it is damage itself."""
UNKNOWN_ROWS = 5_000_000
SMALLEST_ROW_BYTES = 40
"""Both bound how many rows are asked for where the highest number cannot be read."""
JSON_COLUMNS = ("value", "parameters")
Row = tuple[object, ...]


class Saved(NamedTuple):
    """What is in the new file."""

    kernels: int
    nights: int

    @property
    def words(self) -> str:
        """`4 kernels and 1 night were`, `nothing was`."""
        if not self.kernels and not self.nights:
            return "nothing was"
        return f"{_counted(self.kernels, 'kernel')} and {_counted(self.nights, 'night')} were"


def salvage(path: Path, new: Path) -> Saved:
    """Copy each row of `path` that can be read, and whose JSON is whole, into a new library.

    A kernel without its certificate, and a model or region without its night, are left behind.
    Raises OutputError where `new` cannot be written.
    """
    with (
        writing(new),
        contextlib.closing(connect(new)) as target,
        contextlib.closing(_open_damaged(path)) as source,
    ):
        target.execute("pragma foreign_keys = off")
        for table in TABLES:
            _copy(source, target, table, path.stat().st_size)
        with transaction(target):
            target.execute(
                "delete from kernels where certificate not in (select sha256 from certificates)"
            )
            for rows in ("night_models", "night_regions"):
                target.execute(f"delete from {rows} where night not in (select id from nights)")
        # What stayed in the journal would be lost with the renaming.
        target.execute("pragma wal_checkpoint(truncate)")
        return Saved(_count(target, "kernels"), _count(target, "nights"))


def _copy(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, file_bytes: int
) -> None:
    columns = _shared_columns(source, target, table)
    texts = [columns.index(name) for name in JSON_COLUMNS if name in columns]
    names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
    with transaction(target):
        for row in _rows(source, table, names, file_bytes):
            if all(_is_json(row[index]) for index in texts):
                with contextlib.suppress(sqlite3.IntegrityError):
                    target.execute(f"insert into {table} ({names}) values ({marks})", row)


def _shared_columns(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str
) -> list[str]:
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
    for first in range(1, _last(source, table, file_bytes) + 1, STEP):
        try:
            yield from source.execute(query, (first, first + STEP - 1)).fetchall()
        except UNREADABLE:
            for number in range(first, first + STEP):
                with contextlib.suppress(*UNREADABLE):
                    yield from source.execute(query, (number, number)).fetchall()


def _last(source: sqlite3.Connection, table: str, file_bytes: int) -> int:
    try:
        source.execute(f"select 1 from {table} where rowid = 0").fetchone()
    except UNREADABLE:
        return 0
    try:
        found = source.execute(f"select max(rowid) from {table}").fetchone()[0]
    except UNREADABLE:
        return min(UNKNOWN_ROWS, file_bytes // SMALLEST_ROW_BYTES)
    return min(int(found or 0), HIGHEST_ROW)


def _open_damaged(path: Path) -> sqlite3.Connection:
    """The file with its journal if that can be read, else without, else an empty one."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None
        )
        # So SQLite looks into a file that is shorter than its head says.
        connection.execute("pragma writable_schema = on")
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            connection.execute("select 1 from kernels where rowid = 0").fetchone()
        except UNREADABLE:
            connection.close()
        else:
            return connection
    return sqlite3.connect(":memory:")


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
