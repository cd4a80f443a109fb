"""Index of op vectors in memory-mapped files, for the search by what entries compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import one_line
from agentkernel.domain.knowledge import Entry, Filters, Structure
from agentkernel.knowledge.embedding import Changes, group_of, passing
from agentkernel.knowledge.store_schema import Removed, Say
from agentkernel.knowledge.vector_index import Progress
from agentkernel.knowledge.vector_ledger import keeping
from agentkernel.storage.files import read_regular_text, sha256_of_file, try_file_lock

Floats = NDArray[np.float32]
OpVector = Callable[[Structure], NDArray[Any]]
"""A structure as counts or weights of its ops, [width], any real dtype."""
Similarity = Callable[[Structure, Structure], float]
"""How alike two structures are, 0 to 1."""

FORMAT = 3
POINTER = "structures.json"
PARTS = (".npy", ".ends.npy", ".jsonl", ".groups.npy")
"""The ends of the names of an index's files, whose hashes the pointer holds."""
SHORTLIST = 200
"""Candidates of the op vectors that are compared exactly."""
FEW_OPS = 48
"""With at most so many different ops in the question, only their rows are read: 100,000 whole
vectors are 100 MB, which no machine reads in 15 ms for sure."""
BATCH_ENTRIES = 20_000
"""Entries taken in before the files are written: it bounds the memory, and what a kill costs."""


class SimilarEntry(NamedTuple):
    """An entry, and how alike its structure is, 0 to 1."""

    entry_id: str
    value: float


class _Table(NamedTuple):
    """One state of the index; a reader keeps it while a writer makes the next."""

    seq: int
    ids: list[str]
    groups: list[str]
    """The facts that filters ask for, each that occurs once."""
    group_of: NDArray[np.int32]
    """The place in `groups` of each entry: [entries]."""
    vectors: Floats
    """Unit op vectors, one a column: [width, entries]."""
    lines: NDArray[np.uint8]
    """All structures as JSON, one after the other."""
    ends: NDArray[np.int64]
    """Where each of them ends: [entries]."""

    def text(self, place: int) -> bytes:
        start = int(self.ends[place - 1]) if place else 0
        return self.lines[start : int(self.ends[place])].tobytes()

    def left_out(self, filters: Filters) -> NDArray[np.bool_]:
        """Which entries `filters` do not let through: [entries]."""
        allowed = set(passing(self.groups, filters))
        barred = np.array([group not in allowed for group in self.groups], dtype=bool)
        found = barred[self.group_of]
        for place, name in enumerate(self.ids) if filters.without_ids else ():
            found[place] |= name in filters.without_ids
        return found


EMPTY = _Table(
    0,
    [],
    [],
    np.zeros(0, np.int32),
    np.zeros((0, 0), np.float32),
    np.zeros(0, np.uint8),
    np.zeros(0, np.int64),
)


class StructureIndex:
    """The op vectors of all entries that have a structure, in memory-mapped files in `folder`.

    `version` names the definition of `op_vector`: another one begins anew. Raises OutputError
    where the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        op_vector: OpVector,
        similarity: Similarity,
        version: str = "1",
        say: Say | None = None,
    ) -> None:
        """`say` gets one line where a damaged index is to be made anew."""
        self._folder = folder
        self._op_vector = op_vector
        self._similarity = similarity
        self._version = f"{FORMAT}/{version}"
        self._say = say
        self._stamp = 0
        self._table = EMPTY
        with keeping("structures", folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._refresh()

    @property
    def seq(self) -> int:
        """How far in the truth this index is."""
        return self._table.seq

    def __len__(self) -> int:
        return len(self._table.ids)

    def unit_vector(self, structure: Structure) -> Floats:
        """The op vector of `structure` at length one, float32 [width]; zeros stay zeros."""
        vector = np.asarray(self._op_vector(structure), dtype=np.float32)
        return vector / np.float32(max(float(np.linalg.norm(vector)), 1e-12))

    def catch_up(self, truth: Changes, progress: Progress | None = None, wait: bool = True) -> int:
        """Take in what changed in `truth` since; the sequence number that was reached.

        One process writes at a time; where another one does, wait for it, or return at once if
        `wait` is False. Readers keep the state that they have mapped.
        """
        lock = self._folder / "structures.lock"
        with keeping("structures", self._folder), try_file_lock(lock, wait=wait) as ours:
            if not ours:
                return self.seq
            self._refresh()
            if truth.last_seq < self.seq:
                self._table = EMPTY
            while self.seq < truth.last_seq:
                changes = truth.entries(self.seq, BATCH_ENTRIES)
                table = _merged(self._table, changes, self.unit_vector)
                if table.seq == self.seq:
                    break
                self._store(table)
                if progress is not None:
                    progress(self.seq, truth.last_seq)
        return self.seq

    def search(
        self, structure: Structure, limit: int, filters: Filters | None = None
    ) -> list[SimilarEntry]:
        """The `limit` entries that are most alike among those that `filters` let through, best
        first, ties by id; the nearest `SHORTLIST` op vectors are compared exactly."""
        self._refresh()
        table = self._table
        query = self.unit_vector(structure)
        if limit < 1 or not table.ids or not query.any():
            return []
        cosines = _cosines(table.vectors, query)
        if filters is not None and filters != Filters():
            cosines[table.left_out(filters)] = 0.0
        values: dict[bytes, float] = {}
        found = []
        for place in _nearest(cosines):
            text = table.text(place)
            # Many entries share one structure, letter for letter.
            if text not in values:
                other = Structure.model_validate_json(text)
                values[text] = float(self._similarity(structure, other))
            found.append(SimilarEntry(table.ids[place], values[text]))
        found.sort(key=lambda alike: (-alike.value, alike.entry_id))
        return found[:limit]

    def _refresh(self) -> None:
        """Map the current files, if they are others than those at hand. What is damaged, which is
        said, or of another version counts as missing: the next catch-up makes it anew."""
        pointer = self._folder / POINTER
        try:
            stamp = pointer.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            table = _read(self._folder, json.loads(read_regular_text(pointer)), self._version)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            if pointer.is_file() and self._say is not None:
                self._say(f"Structure index was damaged ({one_line(error, 120)}): it is made anew.")
                self._say = None
            return
        self._stamp = stamp
        self._table = table

    def _store(self, table: _Table) -> None:
        """Write `table` under a new name, then point to it, then remove the old files."""
        stem = f"structures-{table.seq}"
        while (self._folder / f"{stem}.npy").exists():
            stem += "x"
        try:
            self._write(stem, table)
        except OSError:
            # On a full disk nothing is left of it: others need the room.
            for part in self._folder.glob(f"{stem}.*"):
                part.unlink(missing_ok=True)
            raise
        for old in self._folder.glob("structures-*"):
            if not old.name.startswith(f"{stem}."):
                old.unlink(missing_ok=True)
        self._refresh()

    def _write(self, stem: str, table: _Table) -> None:
        np.save(self._folder / f"{stem}.npy", table.vectors)
        np.save(self._folder / f"{stem}.ends.npy", table.ends)
        (self._folder / f"{stem}.jsonl").write_bytes(table.lines.tobytes())
        np.save(self._folder / f"{stem}.groups.npy", table.group_of)
        text = {
            "version": self._version,
            "stem": stem,
            "seq": table.seq,
            "ids": table.ids,
            "groups": table.groups,
            "files": {name: sha256_of_file(self._folder / f"{stem}{name}") for name in PARTS},
        }
        draft = self._folder / f"{stem}.tmp"
        text["sha256"] = _own_sha256(text)
        draft.write_text(json.dumps(text), encoding="utf-8")
        draft.replace(self._folder / POINTER)


def _own_sha256(pointer: Mapping[str, object]) -> str:
    """Of what the pointer says, but for this."""
    own = {name: value for name, value in pointer.items() if name != "sha256"}
    return sha256_text(json.dumps(own, sort_keys=True))


def _cosines(vectors: Floats, query: Floats) -> Floats:
    """`query` [width] times every column of `vectors` [width, entries]: [entries]."""
    used = np.flatnonzero(query)
    if len(used) > FEW_OPS:
        return query @ vectors
    total = np.zeros(vectors.shape[1], dtype=np.float32)
    for place in used:
        total += query[place] * vectors[place]
    return total


def _nearest(cosines: Floats) -> list[int]:
    """Places of the `SHORTLIST` largest above 0, largest first, equal ones by place."""
    places = np.flatnonzero(cosines > 0)
    if len(places) > SHORTLIST:
        values = cosines[places]
        edge = np.partition(values, len(values) - SHORTLIST)[len(values) - SHORTLIST]
        places = places[values >= edge]
    order = np.argsort(-cosines[places], kind="stable")[:SHORTLIST]
    return [int(place) for place in places[order]]


class _Found(NamedTuple):
    """What is kept of an entry with a structure."""

    group: str
    column: Floats
    line: bytes


def _merged(
    table: _Table,
    changes: Iterable[tuple[int, Entry | Removed]],
    unit_vector: Callable[[Structure], Floats],
) -> _Table:
    """`table` with `changes`: changed and gone entries leave, new ones come last. The entries are
    read one by one: their texts are many times what is kept of them."""
    seq = table.seq
    latest: dict[str, _Found | None] = {}
    for at, change in changes:
        seq = at
        latest.pop(change.id, None)
        latest[change.id] = None
        if isinstance(change, Entry) and change.structure is not None:
            line = change.structure.model_dump_json(exclude_defaults=True).encode()
            found = _Found(group_of(change), unit_vector(change.structure), line)
            latest[change.id] = found
    new = {name: found for name, found in latest.items() if found is not None}
    keep = [place for place, name in enumerate(table.ids) if name not in latest]
    lines = [table.text(place) for place in keep] + [found.line for found in new.values()]
    groups = list(dict.fromkeys([*table.groups, *(found.group for found in new.values())]))
    place_of = {group: place for place, group in enumerate(groups)}
    parts = [table.vectors[:, keep]] if keep else []
    parts += [np.stack([found.column for found in new.values()], axis=1)] if new else []
    fresh = np.array([place_of[found.group] for found in new.values()], dtype=np.int32)
    return _Table(
        seq,
        [*(table.ids[place] for place in keep), *new],
        groups,
        np.concatenate([table.group_of[keep], fresh]) if keep else fresh,
        np.concatenate(parts, axis=1) if parts else EMPTY.vectors,
        np.frombuffer(b"".join(lines), dtype=np.uint8),
        np.cumsum([len(line) for line in lines], dtype=np.int64),
    )


def _read(folder: Path, pointer: dict[str, Any], version: str) -> _Table:
    """The files that `pointer` names; nothing of another version. Raises ValueError where they are
    not as they were written, or do not fit together."""
    if pointer["version"] != version:
        return EMPTY
    if pointer["sha256"] != _own_sha256(pointer):
        raise ValueError(f"{POINTER} is not as it was written")
    stem = str(pointer["stem"])
    for name, noted in pointer["files"].items():
        if sha256_of_file(folder / f"{stem}{name}") != noted:
            raise ValueError(f"{stem}{name} is not as it was written")
    ids = [str(name) for name in pointer["ids"]]
    # A plain array over the mapping: numpy.memmap itself makes each small operation slower.
    vectors = np.asarray(np.load(folder / f"{stem}.npy", mmap_mode="r")) if ids else EMPTY.vectors
    ends = np.load(folder / f"{stem}.ends.npy")
    groups = [str(name) for name in pointer["groups"]]
    group_of = np.load(folder / f"{stem}.groups.npy")
    path = folder / f"{stem}.jsonl"
    lines = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else EMPTY.lines
    size = int(ends[-1]) if len(ends) else 0
    if size != len(lines):
        raise ValueError(f"{stem} does not fit")
    if ids and not vectors.shape[1] == len(ends) == len(group_of) == len(ids):
        raise ValueError(f"{stem} does not fit")
    return _Table(int(pointer["seq"]), ids, groups, group_of, vectors, lines, ends)
