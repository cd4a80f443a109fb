"""Which passages lie nearest to a vector, and how does that index follow the truth?"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from agentkernel.domain.base import sha256_text
from agentkernel.domain.knowledge import Entry, EntryKind, Filters, Verified
from agentkernel.errors import OutputError, SettingError, one_line
from agentkernel.knowledge.damage import database_damage
from agentkernel.knowledge.embedding import Embedder, Vectors
from agentkernel.knowledge.truth_types import Gone

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

FORMAT = 1
PREFIX = "agentkernel-vectors"
HNSW = {
    "space": "cosine",
    "max_neighbors": 16,
    "ef_construction": 100,
    "ef_search": 100,
    "batch_size": 100,
    "sync_threshold": 1000,
}
"""Measured on clustered vectors of 256 dimensions, 100,000 rows: recall@10 1.00; an `ef_search`
of 200 finds no more. `tests/knowledge/retrieval_speed.py` measures it again."""
BATCH_ROWS = 1024
"""Rows embedded and written at once; it bounds the memory of a catch-up."""
ROWS_AN_ENTRY = 4
"""Rows asked for per entry that is wanted: an entry may come back with several passages."""
WIDE_ROWS = 2048
"""Rows that are sifted here before Chroma is given a `where`: its filter costs about 10 us for
each row that passes (0.3 s where most of 100,000 do), reading 2,048 rows about 20 ms."""
REOPEN_SECONDS = 30.0
"""What another process wrote is seen after this at the latest: Chroma keeps the index in memory
and only a fresh client reads it again (1.6 s for 100,000 rows)."""
STALE_SECONDS = 7 * 24 * 3600.0
"""After this, an unused index of another embedder is removed."""
Say = Callable[[str], None]
Progress = Callable[[int, int], None]
"""Called with the sequence number reached and the truth's last."""


class Changes(Protocol):
    """Everything that happened to the entries, in order."""

    @property
    def last_seq(self) -> int: ...

    def entries(self, after_seq: int, limit: int) -> Iterator[tuple[int, Entry | Gone]]: ...


class Facts(NamedTuple):
    """What filters ask of an entry."""

    kind: EntryKind
    verified: Verified
    licence: str
    architectures: tuple[str, ...]

    def passes(self, filters: Filters) -> bool:
        """Whether `filters` let it through, its id aside."""
        return (
            (not filters.kinds or self.kind in filters.kinds)
            and (not filters.verified or self.verified in filters.verified)
            and (not filters.licences or self.licence in filters.licences)
            and (
                filters.architecture is None
                or not self.architectures
                or filters.architecture in self.architectures
            )
        )


def facts_of(entry: Entry) -> Facts:
    """The facts of `entry`; equal facts share one object, for there are few kinds of them."""
    return _facts(_group(entry))


class Near(NamedTuple):
    """An entry, how near its nearest passage lies (cosine, -1 to 1) and which one that is."""

    entry_id: str
    cosine: float
    passage_no: int


def _group(entry: Entry) -> str:
    """All facts in one string: one metadata key answers every filter with one look-up."""
    return json.dumps([entry.kind, entry.verified, entry.licence, sorted(entry.architectures)])


@lru_cache(maxsize=4096)
def _facts(group: str) -> Facts:
    kind, verified, licence, architectures = json.loads(group)
    return Facts(kind, verified, licence, tuple(architectures))


class FolderLedger:
    """`state.json` (the sequence number) and `facts.jsonl` (id, rows, group) in the index folder.

    Facts stand in memory, because Chroma takes 60 us to read one row's metadata. A reader looks
    at the state's time stamp with each search and reads only what was added.
    """

    def __init__(self, folder: Path, lock: Path) -> None:
        self.seq = 0
        self.groups: Counter[str] = Counter()
        self._state = folder / "state.json"
        self._lines = folder / "facts.jsonl"
        self._lock = lock
        self._known: dict[str, tuple[int, str]] = {}
        self._stamp = 0
        self._offset = 0
        self.refresh()

    def facts(self, entry_id: str) -> Facts | None:
        known = self._known.get(entry_id)
        return _facts(known[1]) if known is not None else None

    def rows(self, entry_ids: Sequence[str]) -> dict[str, int]:
        return {name: self._known[name][0] for name in entry_ids if name in self._known}

    def refresh(self) -> bool:
        """Read what another process added; whether it did. ValueError for a damaged file."""
        try:
            stamp = self._state.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if stamp == self._stamp:
            return False
        self.seq = int(json.loads(self._state.read_text(encoding="utf-8"))["seq"])
        with self._lines.open("rb") as handle:
            handle.seek(self._offset)
            data = handle.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            name, rows, group = json.loads(line)
            self._note(str(name), int(rows), str(group))
        self._offset += len(whole)
        self._stamp = stamp
        return True

    def _note(self, name: str, rows: int, group: str) -> None:
        old = self._known.pop(name, None)
        if old is not None:
            self.groups[old[1]] -= old[0]
        if group:
            self._known[name] = (rows, group)
            self.groups[group] += rows

    def record(self, lines: Iterable[tuple[str, int, str]]) -> None:
        """Append facts, after cutting off what a killed writer left of a line."""
        with self._lines.open("ab") as handle:
            handle.truncate(self._offset)
            handle.seek(0, os.SEEK_END)
            for line in lines:
                self._offset += handle.write(json.dumps(line).encode() + b"\n")
                self._note(*line)

    def reached(self, seq: int) -> None:
        draft = self._state.with_suffix(".tmp")
        database = self._state.with_name("chroma.sqlite3").stat()
        text = {"seq": seq, "database": [database.st_size, database.st_mtime_ns]}
        draft.write_text(json.dumps(text), encoding="utf-8")
        draft.replace(self._state)
        self.seq = seq
        self._stamp = self._state.stat().st_mtime_ns

    def clear(self) -> None:
        self._lines.write_bytes(b"")
        self._known.clear()
        self.groups.clear()
        self._offset = 0
        self.reached(0)

    def writing(self, wait: bool) -> Iterator[bool]:
        """True to one process at a time; False where another one holds it and `wait` is not."""
        with self._lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True


class ServerLedger:
    """The same in the collection's own metadata, for a Chroma server that several machines share.

    Facts come with the rows. Writers do not exclude each other: a batch that is written twice is
    the same batch.
    """

    def __init__(self, collection: Collection, again: Callable[[], Collection]) -> None:
        self._collection = collection
        self._again = again
        self._read_at = time.monotonic()
        self.seq = 0
        self.groups: dict[str, int] = {}
        self._metadata: dict[str, str | int] = {}
        self._read()

    def facts(self, entry_id: str) -> Facts | None:
        return None

    def rows(self, entry_ids: Sequence[str]) -> dict[str, int]:
        found = self._collection.get(where={"entry": {"$in": list(entry_ids)}}, include=[])
        return dict(Counter(_parsed(row)[0] for row in found["ids"]))

    def refresh(self) -> bool:
        """Ask the server again where that is long ago. Its rows need no fresh client: False."""
        if time.monotonic() - self._read_at > REOPEN_SECONDS:
            self._collection = self._again()
            self._read()
        return False

    def _read(self) -> None:
        self._metadata = dict(self._collection.metadata or {})
        self.seq = int(self._metadata.get("seq", 0))
        self.groups = dict.fromkeys(json.loads(str(self._metadata.get("groups", "[]"))), 0)
        self._read_at = time.monotonic()

    def record(self, lines: Iterable[tuple[str, int, str]]) -> None:
        self.groups.update({group: 0 for _, _, group in lines if group})
        self._keep()

    def reached(self, seq: int) -> None:
        self.seq = seq
        self._keep()

    def _keep(self) -> None:
        self._metadata |= {"seq": self.seq, "groups": json.dumps(sorted(self.groups))}
        self._collection.modify(metadata=self._metadata)

    def clear(self) -> None:
        self.groups = {}
        self.reached(0)

    def writing(self, wait: bool) -> Iterator[bool]:
        self._collection = self._again()
        self._read()
        yield True


Ledger = FolderLedger | ServerLedger
"""What an index remembers of itself: how far it is, and the facts of what it holds."""


class DenseIndex:
    """A Chroma collection with one row a passage; row `ENTRY#n` is passage n of `ENTRY`."""

    def __init__(
        self,
        collection: Collection,
        ledger: Ledger,
        embedder: Embedder,
        most: int,
        again: Callable[[], Collection],
    ) -> None:
        """`most` is the client's largest batch; `again` opens the collection with a fresh one."""
        self._collection = collection
        self._ledger = ledger
        self._embedder = embedder
        self._most = most
        self._again = again
        self._outdated = False
        self._opened_at = time.monotonic()

    @property
    def seq(self) -> int:
        """How far in the truth this index is."""
        return self._ledger.seq

    def facts(self, entry_id: str) -> Facts | None:
        """What filters ask of an entry; None where this index does not keep it at hand."""
        return self._ledger.facts(entry_id)

    def catch_up(self, truth: Changes, progress: Progress | None = None, wait: bool = True) -> int:
        """Take in what changed in `truth` since; the sequence number that was reached.

        It is written after each batch, so a kill costs one batch at most. One process writes at a
        time; where another one does, wait for it, or return at once if `wait` is False.
        """
        with contextmanager(self._ledger.writing)(wait) as ours:
            if not ours:
                return self._ledger.seq
            # Writing from an old state would undo what another process wrote.
            self._follow(at_once=True)
            if truth.last_seq < self._ledger.seq:
                self._forget()
            while batch := list(truth.entries(self._ledger.seq, BATCH_ROWS)):
                for part in _parts(batch, min(self._most, BATCH_ROWS)):
                    self._write(part)
                    self._ledger.reached(part[-1][0])
                    if progress is not None:
                        progress(self._ledger.seq, truth.last_seq)
            return self._ledger.seq

    def _follow(self, at_once: bool = False) -> None:
        """See what another process wrote since, now or after `REOPEN_SECONDS`."""
        self._outdated |= self._ledger.refresh()
        if self._outdated and (at_once or time.monotonic() - self._opened_at > REOPEN_SECONDS):
            self._collection = self._again()
            self._outdated = False
            self._opened_at = time.monotonic()

    def _forget(self) -> None:
        """This index followed another truth, which was further on: begin again."""
        while names := self._collection.get(limit=self._most, include=[])["ids"]:
            self._collection.delete(ids=names)
        self._ledger.clear()

    def _write(self, part: Sequence[tuple[int, Entry | Gone]]) -> None:
        """Old rows go first and facts are noted last but one: a repeat then mends a half batch."""
        latest = {change.id: change for _, change in part}
        entries = [change for change in latest.values() if isinstance(change, Entry)]
        kept = {entry.id: len(entry.passages) for entry in entries}
        old = [
            f"{name}#{number}"
            for name, rows in self._ledger.rows(list(latest)).items()
            for number in range(kept.get(name, 0), rows)
        ]
        for first in range(0, len(old), self._most):
            self._collection.delete(ids=old[first : first + self._most])
        self._ledger.record(
            (name, kept.get(name, 0), _group(change) if isinstance(change, Entry) else "")
            for name, change in latest.items()
        )
        self._upsert(entries)

    def _upsert(self, entries: Sequence[Entry]) -> None:
        rows = [
            (entry, number, text) for entry in entries for number, text in enumerate(entry.passages)
        ]
        step = min(self._most, BATCH_ROWS)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            vectors = self._embedder.embed([text for _, _, text in some])
            # A text without known tokens has no direction: it cannot be near anything.
            real = [place for place in range(len(some)) if vectors[place].any()]
            blank = [f"{e.id}#{n}" for e, n, _ in _left_out(some, real)]
            if blank:
                self._collection.delete(ids=blank)
            if real:
                self._collection.upsert(
                    ids=[f"{some[place][0].id}#{some[place][1]}" for place in real],
                    embeddings=vectors[real],
                    metadatas=[_metadata(some[place][0]) for place in real],
                )

    def search(self, vector: Vectors, limit: int, filters: Filters | None = None) -> list[Near]:
        """The `limit` entries nearest to `vector` (float32 [width]), nearest first, ties by id."""
        self._follow()
        filters = filters or Filters()
        if limit < 1 or not np.any(vector):
            return []
        groups = [group for group in self._ledger.groups if _facts(group).passes(filters)]
        if not groups:
            return []
        unfiltered = len(groups) == len(self._ledger.groups)
        first = ROWS_AN_ENTRY * limit + len(filters.without_ids)
        depths = [first, max(WIDE_ROWS, 2 * first)] if self._common(groups, limit) else []
        near: list[Near] = []
        for depth in depths:
            near, whole = self._nearest(vector, depth, filters, None)
            if len(near) >= limit or whole:
                return near[:limit]
        where: dict[str, object] | None = None if unfiltered else {"group": {"$in": groups}}
        depth = first
        whole = False
        while len(near) < limit and not whole:
            near, whole = self._nearest(vector, depth, filters, where)
            depth *= 4
        return near[:limit]

    def _common(self, groups: Sequence[str], limit: int) -> bool:
        """Whether so many rows pass that reading the nearest ones and sifting them will do."""
        total = sum(self._ledger.groups.values())
        passing = sum(self._ledger.groups[group] for group in groups)
        return total == 0 or WIDE_ROWS * passing >= 2 * limit * total

    def _nearest(
        self, vector: Vectors, rows: int, filters: Filters, where: dict[str, object] | None
    ) -> tuple[list[Near], bool]:
        """The entries of the nearest `rows` rows, and whether there are no rows besides these."""
        at_hand = isinstance(self._ledger, FolderLedger)
        answer = self._collection.query(
            query_embeddings=np.asarray(vector, dtype=np.float32)[None],
            n_results=rows,
            where=where,
            include=["distances"] if at_hand else ["distances", "metadatas"],
        )
        names: list[str] = answer["ids"][0]
        metadatas = names if at_hand else answer["metadatas"][0]
        best: dict[str, Near] = {}
        for row, distance, metadata in zip(names, answer["distances"][0], metadatas, strict=True):
            name, number = _parsed(row)
            facts = self._ledger.facts(name) if at_hand else _facts(str(metadata["group"]))
            if name in best or facts is None or name in filters.without_ids:
                continue
            if facts.passes(filters):
                best[name] = Near(name, 1.0 - float(distance), number)
        order = sorted(best.values(), key=lambda near: (-near.cosine, near.entry_id))
        return order, len(names) < rows


def open_vectors(where: Path | str, embedder: Embedder, say: Say | None = None) -> DenseIndex:
    """The index for `embedder` in a folder, or at a Chroma server (`http://host:port`).

    Each embedder has its own index, so another fingerprint fills a new one beside the old. A
    damaged index is left aside and filled anew. `say` gets one line in both cases. Raises
    OutputError for a folder that cannot be written, SettingError for a server that is not there.
    """
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        return _open_server(where, embedder, say)
    root = Path(where)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return _open_folder(root, embedder, say)
    except OSError as error:
        raise OutputError(
            f"Cannot keep the vectors in {str(root)!r}: {error.strerror or error}. Expected a "
            "folder that can be written. Next: choose another folder, or free some space."
        ) from error


def _open_folder(root: Path, embedder: Embedder, say: Say | None) -> DenseIndex:
    """Only an index that is not there yet, or is damaged, makes a reader wait for the lock."""
    stem = f"vectors-{_key(embedder)}-"
    found = _opened(_current(root, stem), root / "lock", embedder)
    if isinstance(found, DenseIndex):
        return found
    with (root / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        folder = _current(root, stem)
        found = _opened(folder, root / "lock", embedder)
        if isinstance(found, DenseIndex):
            return found
        others = [path for path in root.glob("vectors-*") if not path.name.startswith(stem)]
        if say is not None and folder is not None:
            say(f"Vector index was damaged ({found}): it is made anew.")
        elif say is not None and others:
            say("Vector index was made by another embedder or version: a new one is made.")
        _drop_stale(others)
        number = int(folder.name.removeprefix(stem)) + 1 if folder is not None else 0
        if folder is not None:
            # What was damaged serves nobody; a process that has it open keeps its files.
            shutil.rmtree(folder, ignore_errors=True)
        return _created(root / f"{stem}{number}", root / "lock", embedder)


def _current(root: Path, stem: str) -> Path | None:
    numbers = [path.name.removeprefix(stem) for path in root.glob(f"{stem}*")]
    return root / f"{stem}{max(map(int, numbers))}" if numbers else None


def _opened(folder: Path | None, lock: Path, embedder: Embedder) -> DenseIndex | str:
    """The index in `folder`, or what is wrong with it ("" where there is none)."""
    from chromadb.errors import ChromaError

    if folder is None:
        return ""
    try:
        damage = _new_damage(folder)
        if damage is not None:
            return damage
        # First what the ledger says: what is written from here on is then known to be news.
        ledger = FolderLedger(folder, lock)
        index = _joined(folder, ledger, embedder)
        if sum(ledger.groups.values()):
            index.search(np.ones(embedder.embed([""]).shape[1], np.float32), 1)
        return index
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (ChromaError, ValueError, KeyError, TypeError, RuntimeError) as error:
        return one_line(error, 120)


def _new_damage(folder: Path) -> str | None:
    """What SQLite says against the database, asked only where it changed since the last batch:
    the check reads the whole file (2 s for 100,000 rows)."""
    database = folder / "chroma.sqlite3"
    stamp = json.loads((folder / "state.json").read_text(encoding="utf-8"))["database"]
    if database.is_file():
        now = database.stat()
        if stamp == [now.st_size, now.st_mtime_ns]:
            return None
    return database_damage(database)


def _created(folder: Path, lock: Path, embedder: Embedder) -> DenseIndex:
    """An empty index; `state.json` comes last, so that a half-made one is seen as damaged."""
    _collection(_client(folder), PREFIX, embedder)
    ledger = FolderLedger(folder, lock)
    ledger.clear()
    return _joined(folder, ledger, embedder)


def _joined(folder: Path, ledger: FolderLedger, embedder: Embedder) -> DenseIndex:
    """The index over a folder's collection. Raises ValueError for another embedder's."""

    def again() -> Collection:
        return _client(folder).get_collection(PREFIX, embedding_function=None)

    client = _client(folder)
    collection = client.get_collection(PREFIX, embedding_function=None)
    if (collection.metadata or {}).get("fingerprint") != embedder.fingerprint:
        raise ValueError("it names another embedder")
    return DenseIndex(collection, ledger, embedder, client.get_max_batch_size(), again)


def _open_server(address: str, embedder: Embedder, say: Say | None) -> DenseIndex:
    import chromadb
    from chromadb.config import Settings
    from chromadb.errors import ChromaError

    host, port, ssl = _address(address)
    settings = Settings(anonymized_telemetry=False)
    try:
        client = chromadb.HttpClient(host=host, port=port, ssl=ssl, settings=settings)
        name = f"{PREFIX}-{_key(embedder)}"
        names = {str(collection.name) for collection in client.list_collections()}
        if say is not None and name not in names and any(n.startswith(PREFIX) for n in names):
            say("Vector index was made by another embedder or version: a new one is made.")
        collection = _collection(client, name, embedder)

        def again() -> Collection:
            return client.get_collection(name, embedding_function=None)

        ledger = ServerLedger(collection, again)
        return DenseIndex(collection, ledger, embedder, client.get_max_batch_size(), again)
    except (ChromaError, ValueError, OSError) as error:
        raise SettingError(
            f"Cannot use the Chroma server {address!r}: {one_line(error, 120)}. Expected one that "
            "answers at http://HOST:PORT. Next: start it with 'chroma run', or give a folder."
        ) from error


def _address(address: str) -> tuple[str, int, bool]:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    ssl = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if ssl else 8000), ssl


def _collection(client: ClientAPI, name: str, embedder: Embedder) -> Collection:
    return client.get_or_create_collection(
        name,
        metadata={"fingerprint": embedder.fingerprint, "format": FORMAT},
        configuration={"hnsw": HNSW},
        embedding_function=None,
    )


def _client(folder: Path) -> ClientAPI:
    """A client of its own: chromadb.PersistentClient shares one for each folder, with what that
    one has in memory."""
    from chromadb.api import ServerAPI
    from chromadb.api.client import Client
    from chromadb.config import Settings, System

    system = System(
        Settings(
            persist_directory=str(folder),
            is_persistent=True,
            anonymized_telemetry=False,
            allow_reset=False,
        )
    )
    system.instance(ServerAPI)
    system.start()
    return Client.from_system(system)


def _drop_stale(folders: Iterable[Path]) -> None:
    limit = time.time() - STALE_SECONDS
    for folder in folders:
        state = folder / "state.json"
        if state.is_file() and state.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)


def _key(embedder: Embedder) -> str:
    return sha256_text(f"{FORMAT}\0{embedder.fingerprint}")[:12]


def _parsed(row: str) -> tuple[str, int]:
    name, _, number = row.rpartition("#")
    return name, int(number)


def _metadata(entry: Entry) -> dict[str, str]:
    return {
        "entry": entry.id,
        "kind": entry.kind,
        "verified": entry.verified,
        "licence": entry.licence,
        "group": _group(entry),
    }


def _left_out(
    rows: Sequence[tuple[Entry, int, str]], kept: Sequence[int]
) -> list[tuple[Entry, int, str]]:
    keep = set(kept)
    return [row for place, row in enumerate(rows) if place not in keep]


def _parts(
    batch: Sequence[tuple[int, Entry | Gone]], most: int
) -> Iterator[list[tuple[int, Entry | Gone]]]:
    """Runs of changes with at most `most` passages together (one change may have more)."""
    part: list[tuple[int, Entry | Gone]] = []
    rows = 0
    for seq, change in batch:
        size = len(change.passages) if isinstance(change, Entry) else 0
        if part and rows + size > most:
            yield part
            part, rows = [], 0
        part.append((seq, change))
        rows += size
    if part:
        yield part
