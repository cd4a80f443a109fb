"""Ledger of a local vector index: its rows, its progress, and checks for damage.

The ledger answers small searches exactly from memory-mapped rows and detects files of the index
that changed without it. SQLite is asked about damage first, because Chroma aborts on some of it.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.errors import one_line
from agentkernel.domain.knowledge import Filters
from agentkernel.knowledge.embedding import Facts, NearEntry, Rows, Vectors, facts_in
from agentkernel.storage.files import explain_os_error, read_regular_text, room_failure
from agentkernel.storage.sqlite import UNREADABLE, is_damage, reading

DATABASE = "chroma.sqlite3"
FLOAT_BYTES = 4
CHUNK_ROWS = 8192
"""Rows compared at once: 8 MB of 256 dimensions."""
CHUNK_BYTES = 2**22
MOST_BEHIND = 2**24
"""Bytes of facts that are read behind those noted: a writer that was killed leaves a batch."""
"""Bytes of a file that are checked at once."""


class _Held(NamedTuple):
    """Where an entry's rows lie, how many there are, and its group ("": it is gone)."""

    first: int
    rows: int
    group: str


class _Sum(NamedTuple):
    """How many bytes of a file are the index's, and their CRC-32. What lies behind them was left
    by a writer that was killed, or is being written."""

    length: int = 0
    crc: int = 0

    def with_bytes(self, data: bytes) -> _Sum:
        return _Sum(self.length + len(data), zlib.crc32(data, self.crc))


class _Group(NamedTuple):
    """The entries of a group that have rows, as columns."""

    names: list[str]
    first: NDArray[np.int64]
    rows: NDArray[np.int64]


class Ledger:
    """`state.json` (the sequence number, and what the files are known by), `facts.jsonl` (an
    entry's id, rows and group) and `rows.f32` (all vectors, one after the other) in the index
    folder.

    Chroma filters slowly: 60 us to read one row's metadata, 10 us for each row that passes. So the
    facts stand in memory, and the rows of the few entries that a narrow filter lets through are
    compared here one by one. A reader looks at the state's time stamp with each search and reads
    only what was added.

    The facts are checked as they are read, the rows only where another than the index's writer
    changed the file (100,000 rows of 256 dimensions take about 0.1 s).
    """

    def __init__(self, folder: Path, width: int) -> None:
        """`width` is that of the vectors. Raises ValueError, KeyError or TypeError for files that
        are damaged, FileNotFoundError where one is missing."""
        self.seq = 0
        self.rows_of_group: dict[str, int] = {}
        self._state = folder / "state.json"
        self._lines = folder / "facts.jsonl"
        self._rows = folder / "rows.f32"
        self._width = width
        self._held: dict[str, _Held] = {}
        self._of_group: dict[str, dict[str, None]] = {}
        self._columns: dict[str, _Group] = {}
        self._table = np.zeros((0, width), dtype=np.float32)
        self._end = 0
        self._facts_sum = _Sum()
        self._rows_sum = _Sum()
        self._stamp = 0
        self._graph: dict[str, list[int]] = {}
        self.refresh()

    def facts(self, entry_id: str) -> Facts | None:
        """What filters ask of an entry; None where it is not here."""
        held = self._held.get(entry_id)
        return None if held is None else facts_in(held.group)

    def rows(self, entry_id: str) -> int:
        """How many rows an entry has."""
        held = self._held.get(entry_id)
        return 0 if held is None else held.rows

    def refresh(self) -> bool:
        """Read what another process added; whether it did."""
        try:
            stamp = self._state.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if stamp == self._stamp:
            return False
        state = _noted_in(self._state)
        try:
            self._take_in(state)
        except ValueError:
            # Another process may have begun again since: then the files hold from their start.
            self._forget()
            self._take_in(state)
        self.seq = int(state["seq"])
        self._stamp = stamp
        return True

    def _take_in(self, state: dict[str, Any]) -> None:
        self._read_facts(_Sum(*state["facts"]))
        self._check_rows(_Sum(*state["rows"]), state["rows_file"])

    def _read_facts(self, noted: _Sum) -> None:
        """Take in the lines that were added: those noted, and whole ones of a writer after it."""
        with self._lines.open("rb") as handle:
            handle.seek(self._facts_sum.length)
            more = noted.length - self._facts_sum.length
            size = os.fstat(handle.fileno()).st_size
            data = handle.read(min(max(more, 0) + MOST_BEHIND, size))
        if more >= 0 and self._facts_sum.with_bytes(data[:more]) != noted:
            raise ValueError(f"{self._lines.name} is not as it was written")
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            name, first, rows, group = json.loads(line)
            self._note(str(name), _Held(int(first), int(rows), str(group)))
        self._facts_sum = self._facts_sum.with_bytes(whole)

    def _check_rows(self, noted: _Sum, noted_file: object) -> None:
        """See that the rows are those that were written, and sum up those behind them."""
        if self._rows.stat().st_size < max(noted.length, self._end * self._row_bytes):
            raise ValueError("rows are missing")
        if noted.length > self._rows_sum.length:
            if noted_file != file_stamp(self._rows):
                found = self._sum_of_rows(noted.length)
                if found != noted:
                    raise ValueError(f"{self._rows.name} is not as it was written")
            self._rows_sum = noted
        self._rows_sum = self._sum_of_rows(self._end * self._row_bytes)

    def _sum_of_rows(self, length: int) -> _Sum:
        """`_rows_sum` of the file's first `length` bytes; what is summed up is not read again."""
        found = self._rows_sum
        with self._rows.open("rb") as handle:
            handle.seek(found.length)
            while data := handle.read(max(0, min(CHUNK_BYTES, length - found.length))):
                found = found.with_bytes(data)
        return found

    def record(self, changed: Sequence[Rows]) -> None:
        """Append rows and facts, after cutting off what a killed writer left of them."""
        start = self._end
        with self._rows.open("ab") as handle:
            handle.truncate(start * self._row_bytes)
            for item in changed:
                data = np.ascontiguousarray(item.vectors, dtype=np.float32).tobytes()
                handle.write(data)
                self._rows_sum = self._rows_sum.with_bytes(data)
        with self._lines.open("ab") as handle:
            handle.truncate(self._facts_sum.length)
            for item in changed:
                held = _Held(start, len(item.vectors), item.group)
                line = json.dumps([item.entry_id, *held]).encode() + b"\n"
                handle.write(line)
                self._facts_sum = self._facts_sum.with_bytes(line)
                self._note(item.entry_id, held)
                start += held.rows

    def reached(self, seq: int) -> None:
        """Let other processes see what was recorded, up to `seq`."""
        draft = self._state.with_suffix(".tmp")
        text = {
            "seq": seq,
            "database": file_stamp(self._state.with_name(DATABASE)),
            "facts": self._facts_sum,
            "rows": self._rows_sum,
            "rows_file": file_stamp(self._rows),
            "graph": self._graph_sums(),
        }
        draft.write_text(json.dumps(text), encoding="utf-8")
        draft.replace(self._state)
        self.seq = seq
        self._stamp = self._state.stat().st_mtime_ns

    def _graph_sums(self) -> dict[str, list[int]]:
        """The stamp and CRC-32 of each file of Chroma's graph; what did not change since is not
        read again."""
        found = {}
        for path in graph_files(self._state.parent):
            name = str(path.relative_to(self._state.parent))
            stamp, known = file_stamp(path), self._graph.get(name)
            same = known is not None and known[:2] == stamp
            found[name] = known if known is not None and same else [*stamp, crc_of(path)]
        self._graph = found
        return found

    def clear(self) -> None:
        """Begin again with nothing."""
        for path in (self._lines, self._rows):
            path.write_bytes(b"")
        self._forget()
        self.reached(0)

    def _forget(self) -> None:
        for known in (self._held, self._of_group, self._columns, self.rows_of_group):
            known.clear()
        self._table = self._table[:0]
        self._end = 0
        self._facts_sum = self._rows_sum = _Sum()

    def nearest(
        self, vector: Vectors, limit: int, groups: Sequence[str], filters: Filters
    ) -> list[NearEntry]:
        """The `limit` nearest entries of `groups` by reading all their rows, nearest first."""
        columns = [self._group(group) for group in groups]
        names = [name for column in columns for name in column.names]
        if not names:
            return []
        counts = np.concatenate([column.rows for column in columns])
        begins = np.cumsum(counts) - counts
        first = np.concatenate([column.first for column in columns])
        places = np.repeat(first - begins, counts) + np.arange(counts.sum())
        cosines = self._cosines(places, vector)
        best = np.maximum.reduceat(cosines, begins)
        # Those that are to be left out take up no place of the others.
        most = limit + len(filters.without_ids)
        edge = np.partition(best, len(best) - most)[len(best) - most] if len(best) > most else -1.0
        found = [
            NearEntry(
                names[place], float(best[place]), self._passage(cosines, begins, counts, place)
            )
            for place in np.flatnonzero((best >= edge) & (best > -1.0)).tolist()
            if names[place] not in filters.without_ids
        ]
        return sorted(found, key=lambda near: (-near.cosine, near.entry_id))[:limit]

    def _cosines(self, places: NDArray[np.int64], vector: Vectors) -> Vectors:
        """Of the rows at `places` with `vector`; -2 for a row without a direction."""
        table = self._mapped()
        unit = np.asarray(vector, dtype=np.float32)
        unit = unit / np.float32(np.linalg.norm(unit))
        cosines = np.empty(len(places), dtype=np.float32)
        for start in range(0, len(places), CHUNK_ROWS):
            some = places[start : start + CHUNK_ROWS]
            cosines[start : start + len(some)] = table[some] @ unit
        # Only zeros are at exactly a right angle to a vector of many dimensions.
        cosines[cosines == 0.0] = -2.0
        return cosines

    def _mapped(self) -> Vectors:
        """All rows, [rows, width]; mapped once and again when there are more."""
        if len(self._table) < self._end:
            # A plain array: numpy.memmap itself makes each small operation slower.
            table = np.asarray(np.memmap(self._rows, dtype=np.float32, mode="r"))
            self._table = table[: self._end * self._width].reshape(-1, self._width)
        return self._table

    @staticmethod
    def _passage(
        cosines: Vectors, begins: NDArray[np.int64], counts: NDArray[np.int64], place: int
    ) -> int:
        begin = int(begins[place])
        return int(np.argmax(cosines[begin : begin + int(counts[place])]))

    def _group(self, group: str) -> _Group:
        found = self._columns.get(group)
        if found is None:
            names = [name for name in self._of_group.get(group, ()) if self._held[name].rows]
            held = [self._held[name] for name in names]
            found = self._columns[group] = _Group(
                names,
                np.array([item.first for item in held], dtype=np.int64),
                np.array([item.rows for item in held], dtype=np.int64),
            )
        return found

    def _note(self, name: str, held: _Held) -> None:
        old = self._held.pop(name, None)
        if old is not None:
            self.rows_of_group[old.group] -= old.rows
            self._of_group[old.group].pop(name)
            self._columns.pop(old.group, None)
        if held.group:
            self._held[name] = held
            self.rows_of_group[held.group] = self.rows_of_group.get(held.group, 0) + held.rows
            self._of_group.setdefault(held.group, {})[name] = None
            self._columns.pop(held.group, None)
        self._end = max(self._end, held.first + held.rows)

    @property
    def _row_bytes(self) -> int:
        return self._width * FLOAT_BYTES


def file_stamp(file: Path) -> list[int]:
    """The size and the time of the last change."""
    found = os.stat(file)
    return [found.st_size, found.st_mtime_ns]


def graph_files(folder: Path) -> list[Path]:
    """The files in which Chroma keeps the graph of an index."""
    return sorted(path for path in folder.glob("*/*") if path.is_file())


def crc_of(file: Path) -> int:
    """Of all of a file, which is read in pieces."""
    crc = 0
    with file.open("rb") as handle:
        while data := handle.read(CHUNK_BYTES):
            crc = zlib.crc32(data, crc)
    return crc


def _noted_in(state: Path) -> dict[str, Any]:
    """Raises ValueError for what is no JSON, or is longer than any index has it; OSError."""
    try:
        return dict(json.loads(read_regular_text(state)))
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ValueError(f"{state.name}: {error.strerror}") from error
        raise


def graph_damage(folder: Path) -> str | None:
    """Which file of the graph is not as it was written, where nobody wrote to the database since
    that was noted. Only files that somebody touched are read."""
    noted = _noted_in(folder / "state.json").get("graph", {})
    for name, (size, moment, crc) in noted.items():
        path = folder / name
        found = file_stamp(path)
        if found != [size, moment] and (found[0] != size or crc_of(path) != crc):
            return f"{path.name} is not as it was written"
    return None


def database_unchanged(folder: Path) -> bool:
    """Whether nobody but a writer of the index wrote to Chroma's database since it was noted.

    Raises FileNotFoundError, ValueError, KeyError or TypeError where nothing of use was noted.
    """
    noted = _noted_in(folder / "state.json")["database"]
    try:
        return bool(noted == file_stamp(folder / DATABASE))
    except FileNotFoundError:
        return False


def database_damage(database: Path) -> str | None:
    """What SQLite says against the file; asked first, because Chroma aborts on some of it."""
    if not database.is_file():
        return "its database is missing"
    try:
        with reading(database) as connection:
            answer = connection.execute("PRAGMA quick_check").fetchone()
    except UNREADABLE as error:
        if not is_damage(error):
            raise
        return one_line(error, 120)
    return None if answer == ("ok",) else one_line(answer, 120)


def keeping(what: str, folder: Path) -> AbstractContextManager[None]:
    """Turn a failed write of the index `what` in `folder` into one clear OutputError."""

    def line(path: Path, problem: str, full: bool) -> str:
        return (
            f"Cannot keep the {what} in {str(path)!r}: {problem}. Expected a folder that can be "
            f"written. Next: {'make room' if full else 'choose another folder, or make room'}."
        )

    return explain_os_error(folder, line)


def refuse_failing_disk(folder: Path) -> None:
    """Raise the OSError of a disk that is full or read-only: what lies there is not damaged."""
    failure = room_failure(folder)
    if failure is not None:
        raise failure
