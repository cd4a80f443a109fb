"""Store of measured schedules, which a later search of an equal or like step tries first."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import AgentKernelError, OutputError, SettingError, one_line
from agentkernel.storage.files import data_folder
from agentkernel.storage.sqlite import Database, copy_rows, reading_damaged, transaction

FILE_NAME = "schedules.sqlite"
SAME, LIKE = 4, 2
"""Schedules that are offered of the same sizes, and of the nearest other ones."""
BEST_OF_EACH = """
    select sizes, schedule from (
        select sizes, schedule, time_us,
            row_number() over (partition by sizes order by time_us, schedule) as place
        from times where structure = ? and setting = ?)
    where place <= ? order by time_us, schedule"""
SCHEMA = (
    """create table times (
        structure text not null, sizes text not null, setting text not null,
        schedule text not null, time_us real not null)""",
    "create unique index times_by_step on times (structure, setting, sizes, schedule)",
)
LINE_MOST = 200
Say = Callable[[str], None]


def _examine(connection: sqlite3.Connection, whole: bool, marked: bool) -> None:
    connection.execute("select max(rowid) from times").fetchone()


DATABASE = Database(
    name="measured schedules in",
    noun="file of measured schedules",
    place="folder",
    elsewhere="another folder with XDG_DATA_HOME",
    error=OutputError,
    versions=(SCHEMA,),
    examine=_examine,
    application=0x616B7363,
)
writing, using = DATABASE.writing, DATABASE.using


class StepKey(NamedTuple):
    """A step without its names: the hash of what it computes, with its types and precision, and
    every size in the order of its text."""

    structure: str
    sizes: tuple[int, ...]


class ScheduleStore:
    """Microseconds of schedules, as JSON texts, by step, GPU and versions.

    Its rows are hints: whoever searches measures them again. Any number of processes may use one
    file. What goes wrong with it is one line to `say`, and from then on it is empty and keeps
    nothing.
    """

    def __init__(self, path: Path, setting: str, say: Say) -> None:
        """Open or make `path`. `setting` names the GPU and the versions that times hold for."""
        self._path = path
        self._setting = setting
        self._say = say
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._in_use: IO[bytes] | None = None
        with self._going_on():
            self._open()

    def __enter__(self) -> ScheduleStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; it keeps nothing more."""
        with self._lock:
            db, in_use, self._db, self._in_use = self._db, self._in_use, None, None
        for item in (db, in_use):
            if item is not None:
                item.close()

    def best(self, step: StepKey) -> tuple[str, ...]:
        """The fastest schedules of `step`, then those of its structure at the nearest other sizes,
        by the doublings between them; none twice."""
        rows: list[tuple[str, str]] = []
        with self._going_on(), self._lock:
            if self._db is not None:
                values = (step.structure, self._setting, SAME)
                with using(self._path):
                    rows = self._db.execute(BEST_OF_EACH, values).fetchall()
        by_sizes: dict[tuple[int, ...], list[str]] = {}
        for text, schedule in rows:
            by_sizes.setdefault(_sizes(text), []).append(schedule)
        others = [sizes for sizes in by_sizes if len(sizes) == len(step.sizes) != 0]
        nearest = sorted(others, key=lambda sizes: (doublings(sizes, step.sizes), sizes))
        found = by_sizes.get(step.sizes, [])
        for sizes in [item for item in nearest if item != step.sizes][:1]:
            found = [*found, *by_sizes[sizes][:LIKE]]
        return tuple(dict.fromkeys(found))

    def keep(self, step: StepKey, times_us: Mapping[str, float]) -> None:
        """Put the measured times of schedules in the place of what was known of them."""
        with self._going_on(), self._lock:
            if self._db is None or not times_us:
                return
            sizes = json.dumps(step.sizes)
            rows = [
                (step.structure, sizes, self._setting, schedule, time_us)
                for schedule, time_us in times_us.items()
            ]
            with using(self._path), transaction(self._db):
                self._db.executemany("insert or replace into times values (?, ?, ?, ?, ?)", rows)

    def _open(self) -> None:
        path = self._path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with DATABASE.opening(path):
            self._db, self._in_use, mended = DATABASE.open(path, _salvage)
        if mended is not None:
            self._say(mended)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Turn a failure into one line, after which nothing is read or kept."""
        try:
            yield
        except (AgentKernelError, sqlite3.Error, OSError) as error:
            self.close()
            self._say(f"measured schedules are not kept: {one_line(error, LINE_MOST)}")


def open_schedule_store(gpu: str, versions: Versions, say: Say) -> ScheduleStore | None:
    """The user's own store, for times on `gpu`; None, which is said, for a user without a home."""
    try:
        path = data_folder() / FILE_NAME
    except SettingError as error:
        say(f"measured schedules are not kept: {one_line(error, LINE_MOST)}")
        return None
    setting = (gpu, versions.torch, versions.triton, versions.agentkernel)
    return ScheduleStore(path, json.dumps(setting), say)


def doublings(left: Sequence[int], right: Sequence[int]) -> float:
    """How far sizes are apart: the sum of the doublings from one to the other."""
    pairs = zip(left, right, strict=True)
    return sum(abs(math.log2(max(1, a)) - math.log2(max(1, b))) for a, b in pairs)


def _sizes(text: str) -> tuple[int, ...]:
    """The sizes of a row; none where somebody else wrote it."""
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    whole = isinstance(found, list) and all(isinstance(item, int) for item in found)
    return tuple(found) if whole else ()


def _salvage(path: Path, new: Path) -> str:
    """Copy the rows of `path` that can be read into a new file; `4 times were`."""
    with (
        writing(new),
        contextlib.closing(DATABASE.connect(new)) as target,
        contextlib.closing(reading_damaged(path, "times")) as source,
    ):
        copied = copy_rows(source, target, "times", _is_whole, path.stat().st_size)
        # What stayed in the journal would be lost with the renaming.
        target.execute("pragma wal_checkpoint(truncate)")
    return f"{copied} times were"


def _is_whole(row: dict[str, object]) -> bool:
    return isinstance(row["time_us"], float) and bool(_sizes(str(row["sizes"])))
