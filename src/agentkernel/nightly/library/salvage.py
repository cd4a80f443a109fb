"""What can still be read of a damaged library."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import NamedTuple

from agentkernel.nightly.library.schema import TABLES, connect, writing
from agentkernel.storage.database import copy_rows, reading_damaged, transaction

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
