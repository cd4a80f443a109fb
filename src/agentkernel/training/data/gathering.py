"""Where do tens of thousands of rows wait while it is decided what becomes of them? On disk."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentkernel.storage.atomic import explain_write_failure
from agentkernel.training.training import JudgedKernel, Label, Task, TrainingRow

SCHEMA = """
create table judged (
    problem text not null, kernel text not null, known integer not null, value blob not null,
    primary key (problem, kernel)) without rowid;
create table problems (sha256 text primary key, value blob not null) without rowid;
create table rows (
    id text primary key, task text not null, cell text not null, place text not null,
    value blob not null) without rowid;
create index rows_by_cell on rows (task, cell, place);
"""


WORD: dict[Label, int] = {"not-judged": 0, "refused": 2}
"""How much a label counts against another on the same text: a kernel that was refused once is not
learned, whoever accepted it another time."""


class Cell(NamedTuple):
    """Rows of one task, family, bound and target."""

    task: Task
    cell: str
    rows: int


class ScratchRows:
    """A scratch database, made anew each time: nothing in it has to outlive a kill."""

    def __init__(self, path: Path) -> None:
        """Begin an empty one at `path`, where no file is. Raises OutputError."""
        self._path = path
        with explain_write_failure(path):
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.executescript("pragma journal_mode=off; pragma synchronous=off;" + SCHEMA)
            self._db.execute("begin")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, row: JudgedKernel) -> bool:
        """Keep a kernel for its problem; of equal texts the one that the judge refused, then one
        that it accepted, then the first. True where there was none yet."""
        problem, kernel, known = row.problem_sha256, row.sha256, WORD.get(row.label, 1)
        bare = row.model_copy(update={"problem": ""})
        with explain_write_failure(self._path):
            old = self._db.execute(
                "select known from judged where problem=? and kernel=?", (problem, kernel)
            ).fetchone()
            if old is None or known > int(old[0]):
                self._db.execute(
                    "insert or replace into judged values (?,?,?,?)",
                    (problem, kernel, known, _packed(bare.model_dump_json())),
                )
                self._db.execute(
                    "insert or ignore into problems values (?,?)", (problem, _packed(row.problem))
                )
        return old is None

    def problem(self, sha256: str) -> str:
        """The text of a problem."""
        row = self._db.execute("select value from problems where sha256=?", (sha256,)).fetchone()
        return _unpacked(row[0])

    def kernel(self, problem: str, kernel: str) -> JudgedKernel:
        """The kernel of that hash for the problem of that hash."""
        row = self._db.execute(
            "select value from judged where problem=? and kernel=?", (problem, kernel)
        ).fetchone()
        bare = JudgedKernel.model_validate_json(_unpacked(row[0]))
        return bare.model_copy(update={"problem": self.problem(problem)})

    def problems(self) -> Iterator[tuple[str, str, tuple[JudgedKernel, ...]]]:
        """Hash, text and kernels of each problem, by hash."""
        names = self._db.execute("select sha256 from problems order by sha256").fetchall()
        for (name,) in names:
            text = self.problem(name)
            found = self._db.execute(
                "select value from judged where problem=? order by kernel", (name,)
            )
            rows = tuple(JudgedKernel.model_validate_json(_unpacked(item[0])) for item in found)
            yield name, text, tuple(row.model_copy(update={"problem": text}) for row in rows)

    def put(self, row: TrainingRow, cell: str, place: str) -> bool:
        """Keep a conversation that may be taken, under the order in which its cell is taken; False
        where the very same is there."""
        with explain_write_failure(self._path):
            cursor = self._db.execute(
                "insert or ignore into rows values (?,?,?,?,?)",
                (row.id, row.task, cell, place, _packed(row.model_dump_json())),
            )
        return cursor.rowcount > 0

    def cells(self) -> tuple[Cell, ...]:
        """How many rows there are of what."""
        found = self._db.execute(
            "select task, cell, count(*) from rows group by task, cell order by task, cell"
        )
        return tuple(Cell(task, cell, int(count)) for task, cell, count in found.fetchall())

    def keep(self, task: Task, cell: str, most: int) -> None:
        """Leave the rows of a cell past the first `most` out."""
        with explain_write_failure(self._path):
            self._db.execute(
                "delete from rows where id in (select id from rows where task=? and cell=? "
                "order by place, id limit -1 offset ?)",
                (task, cell, most),
            )

    def taken(self) -> Iterator[TrainingRow]:
        """What is left, by hash: tasks and modules are mixed, the same each time."""
        for (value,) in self._db.execute("select value from rows order by id"):
            yield TrainingRow.model_validate_json(_unpacked(value))


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def _unpacked(value: bytes) -> str:
    return zlib.decompress(value).decode("utf-8", "surrogatepass")


__all__ = ["Cell", "ScratchRows"]
