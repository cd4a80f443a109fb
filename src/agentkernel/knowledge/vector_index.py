"""Dense index of passages over Chroma, in a local folder or at a Chroma server.

The index follows the store of entries by sequence number. A damaged folder is made anew; several
processes may use a folder and several machines a server.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge.embedding import (
    COLLECTION,
    FORMAT,
    HNSW,
    ROWS_AN_ENTRY,
    Changes,
    Embedder,
    Facts,
    NearEntry,
    Rows,
    Vectors,
    VectorStore,
    best_of_entries,
    group_of,
    parsed_row,
    passing,
    row_id,
)
from agentkernel.knowledge.store_schema import Removed, Say
from agentkernel.knowledge.vector_ledger import (
    Ledger,
    database_damage,
    database_unchanged,
    graph_damage,
    keeping,
    refuse_failing_disk,
)
from agentkernel.storage.files import refuse_strange, try_file_lock

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection


FEW_ROWS = 8192
"""As many rows are compared one by one where a filter lets no others through (about 10 ms)."""
WIDE_ROWS = 2048
"""Rows that are asked of Chroma at most, to be sifted here (20 ms); where that would not do, all
that pass are compared."""
REOPEN_SECONDS = 30.0
"""What another process wrote is seen after this at the latest: Chroma keeps the index in memory
and only a fresh client reads it again (1.6 s for 100,000 rows)."""
UNFIT = (ValueError, KeyError, TypeError, RuntimeError)
"""What reading an index raises whose files do not fit together."""
STALE_SECONDS = 7 * 24 * 3600.0
"""After this, an unused index of another embedder is removed."""


@contextmanager
def without_panic() -> Iterator[None]:
    """Chroma's Rust part panics over rows that it never wrote, which is no Exception: raises
    ChromaError in its place."""
    from chromadb.errors import InternalError

    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InternalError(str(error)) from error


class FolderStore:
    """Chroma for the rows and a ledger for what they belong to, in one folder."""

    def __init__(self, folder: Path, lock: Path, fingerprint: str, width: int) -> None:
        """Raises what Chroma and `Ledger` raise for damage, ValueError for another embedder's."""
        self._folder = folder
        self._lock = lock
        # First what the ledger says: what is written from here on is then known to be news.
        self._ledger = Ledger(folder, width)
        self._collection, self._most = _collection(folder)
        if (self._collection.metadata or {}).get("fingerprint") != fingerprint:
            raise ValueError("it names another embedder")
        if sum(self._ledger.rows_of_group.values()):
            self._by_graph(np.ones(width, np.float32), 1, Filters())
        self._outdated = False
        self._opened_at = time.monotonic()

    @property
    def seq(self) -> int:
        return self._ledger.seq

    def facts(self, entry_id: str) -> Facts | None:
        return self._ledger.facts(entry_id)

    @contextmanager
    def writing(self, wait: bool) -> Iterator[bool]:
        with try_file_lock(self._lock, wait=wait) as ours:
            if ours:
                # Writing from an old state would undo what another process wrote.
                self._follow(at_once=True)
            yield ours

    @without_panic()
    def clear(self) -> None:
        while names := self._collection.get(limit=self._most, include=[])["ids"]:
            self._collection.delete(ids=names)
        self._ledger.clear()

    @without_panic()
    def replace(self, changed: Sequence[Rows], seq: int) -> None:
        """Old rows go first and the number is noted last: a repeat then fixes a half batch."""
        directed = {item.entry_id: set(item.directed()) for item in changed}
        old = [
            row_id(name, number)
            for name, kept in directed.items()
            for number in range(self._ledger.rows(name))
            if number not in kept
        ]
        for first in range(0, len(old), self._most):
            self._collection.delete(ids=old[first : first + self._most])
        self._ledger.record(changed)
        ids = [row_id(name, number) for name, kept in directed.items() for number in sorted(kept)]
        if ids:
            vectors = np.concatenate([item.vectors[item.directed()] for item in changed])
            for first in range(0, len(ids), self._most):
                last = first + self._most
                self._collection.upsert(ids=ids[first:last], embeddings=vectors[first:last])
        self._ledger.reached(seq)

    def nearest(self, vector: Vectors, limit: int, filters: Filters) -> list[NearEntry]:
        self._follow()
        rows = self._ledger.rows_of_group
        groups = passing(rows, filters)
        total, some = sum(rows.values()), sum(rows[group] for group in groups)
        if not some:
            return []
        # Were those that pass spread evenly, so many rows would hold enough of them.
        enough = ROWS_AN_ENTRY * limit + len(filters.without_ids)
        depth = -(-enough * total // some)
        if some == total or (some > FEW_ROWS and depth <= WIDE_ROWS):
            near = self._by_graph(vector, depth, filters)
            if len(near) >= limit or depth >= total:
                return near[:limit]
        return self._ledger.nearest(vector, limit, groups, filters)

    @without_panic()
    def _by_graph(self, vector: Vectors, depth: int, filters: Filters) -> list[NearEntry]:
        """The entries of the nearest `depth` rows that pass, by Chroma's graph."""
        answer = self._collection.query(
            query_embeddings=np.asarray(vector, dtype=np.float32)[None],
            n_results=depth,
            include=["distances"],
        )

        def passed() -> Iterator[NearEntry]:
            for row, distance in zip(answer["ids"][0], answer["distances"][0], strict=True):
                name, number = parsed_row(row)
                facts = self._ledger.facts(name)
                if facts is None or name in filters.without_ids or not facts.passes(filters):
                    continue
                yield NearEntry(name, 1.0 - float(distance), number)

        return best_of_entries(passed())

    def _follow(self, at_once: bool = False) -> None:
        """See what another process wrote since, now or after `REOPEN_SECONDS`."""
        self._outdated |= self._ledger.refresh()
        if self._outdated and (at_once or time.monotonic() - self._opened_at > REOPEN_SECONDS):
            self._collection, self._most = _collection(self._folder)
            self._outdated = False
            self._opened_at = time.monotonic()


def open_folder(
    root: Path, key: str, fingerprint: str, width: int, say: Say | None = None
) -> FolderStore:
    """The index `key` in `root`, beside those of other embedders; a damaged one is made anew.

    Only an index that is not there yet, or is damaged, makes a reader wait for the lock. `say` gets
    one line where one is made in place of another. Raises OutputError for a folder that cannot be
    written.
    """
    stem, lock = f"vectors-{key}-", root / "lock"
    with keeping("vectors", root):
        root.mkdir(parents=True, exist_ok=True)
        found = _opened(_current(root, stem), lock, fingerprint, width)
        if isinstance(found, FolderStore):
            return found
        with try_file_lock(lock, wait=True):
            folder = _current(root, stem)
            found = _opened(folder, lock, fingerprint, width)
            if isinstance(found, FolderStore):
                return found
            others = [path for path in root.glob("vectors-*") if not path.name.startswith(stem)]
            if say is not None and folder is not None:
                say(f"Vector index was damaged ({found}): it is made anew.")
            elif say is not None and others:
                say("Vector index was made by another embedder or version: a new one is made.")
            _drop_stale(others)
            number = 0
            if folder is not None:
                number = int(folder.name.removeprefix(stem)) + 1
                # What was damaged serves nobody; a process that has it open keeps its files.
                if folder.is_dir():  # of a pipe rmtree would wait for a writer
                    shutil.rmtree(folder, ignore_errors=True)
            return _created(root / f"{stem}{number}", lock, fingerprint, width)


def _current(root: Path, stem: str) -> Path | None:
    numbers = [path.name.removeprefix(stem) for path in root.glob(f"{stem}*")]
    return root / f"{stem}{max(map(int, numbers))}" if numbers else None


def _opened(folder: Path | None, lock: Path, fingerprint: str, width: int) -> FolderStore | str:
    """The index in `folder`, or what is wrong with it ("" where there is none)."""
    from chromadb.errors import ChromaError

    if folder is None:
        return ""
    try:
        _refuse_strange(folder)
        # The check reads the whole database (2 s for 100,000 rows): only where it changed.
        # A writer that was killed may have left a newer graph, and then a newer database too.
        if database_unchanged(folder):
            damage = graph_damage(folder)
        else:
            damage = database_damage(folder / "chroma.sqlite3")
        return damage or FolderStore(folder, lock, fingerprint, width)
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (sqlite3.OperationalError, ChromaError, *UNFIT) as error:
        # Chroma fails alike where there is no room beside an index that is whole.
        refuse_failing_disk(folder)
        return one_line(error, 120)


def _refuse_strange(folder: Path) -> None:
    """Raise OSError for a link, a pipe or a device among the files of an index: Chroma would write
    through it, or wait."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            refuse_strange(path)


def _created(folder: Path, lock: Path, fingerprint: str, width: int) -> FolderStore:
    """An empty index; `state.json` comes last, so that a half-made one is seen as damaged."""
    from chromadb.errors import ChromaError

    try:
        refuse_failing_disk(folder.parent)
        _client(folder).create_collection(
            COLLECTION,
            metadata={"fingerprint": fingerprint, "format": FORMAT},
            configuration={"hnsw": HNSW},
            embedding_function=None,
        )
        Ledger(folder, width).clear()
        return FolderStore(folder, lock, fingerprint, width)
    except (ChromaError, OSError, *UNFIT) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise
        refuse_failing_disk(folder.parent)
        raise OSError(one_line(error, 120)) from error


@without_panic()
def _collection(folder: Path) -> tuple[Collection, int]:
    """The collection of a fresh client, and the client's largest batch."""
    client = _client(folder)
    found = client.get_collection(COLLECTION, embedding_function=None)
    return found, client.get_max_batch_size()


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


LOOK_AGAIN_S = 30.0
"""What another machine wrote besides rows (groups, how far it is) is asked for after this."""


class ServerStore:
    """Rows with their entry and group as metadata; the rest in the collection's own metadata.

    Writers do not exclude each other: a batch that is written twice is the same batch.
    """

    def __init__(self, collection: Collection, most: int, again: Callable[[], Collection]) -> None:
        """`most` is the server's largest batch; `again` asks for the collection anew."""
        self._collection = collection
        self._most = most
        self._again = again
        self._read()

    @property
    def seq(self) -> int:
        return self._seq

    def facts(self, entry_id: str) -> Facts | None:
        """None: to ask the server for each would take long."""
        return None

    @contextmanager
    def writing(self, wait: bool) -> Iterator[bool]:
        self._collection = self._again()
        self._read()
        yield True

    def clear(self) -> None:
        while names := self._collection.get(limit=self._most, include=[])["ids"]:
            self._collection.delete(ids=names)
        self._keep(0, set())

    def replace(self, changed: Sequence[Rows], seq: int) -> None:
        """Old rows go first and the number is noted last: a repeat then fixes a half batch."""
        names = [item.entry_id for item in changed]
        held = self._collection.get(where={"entry": {"$in": names}}, include=[])["ids"]
        rows = [
            (row_id(item.entry_id, number), item, number)
            for item in changed
            for number in item.directed()
        ]
        old = sorted(set(held) - {name for name, _, _ in rows})
        for first in range(0, len(old), self._most):
            self._collection.delete(ids=old[first : first + self._most])
        # A group has to be known before there are rows of it: a search asks for known ones.
        groups = self._groups | {item.group for item in changed if item.group}
        if groups != self._groups:
            self._keep(self._seq, groups)
        for first in range(0, len(rows), self._most):
            some = rows[first : first + self._most]
            self._collection.upsert(
                ids=[name for name, _, _ in some],
                embeddings=np.stack([item.vectors[number] for _, item, number in some]),
                metadatas=[{"entry": item.entry_id, "group": item.group} for _, item, _ in some],
            )
        self._keep(seq, groups)

    def nearest(self, vector: Vectors, limit: int, filters: Filters) -> list[NearEntry]:
        if time.monotonic() - self._read_at > LOOK_AGAIN_S:
            self._collection = self._again()
            self._read()
        groups = passing(self._groups, filters)
        if not groups:
            return []
        where = None if len(groups) == len(self._groups) else {"group": {"$in": groups}}
        depth = ROWS_AN_ENTRY * limit + len(filters.without_ids)
        while True:
            answer = self._collection.query(
                query_embeddings=np.asarray(vector, dtype=np.float32)[None],
                n_results=depth,
                where=where,
                include=["distances"],
            )
            names, distances = answer["ids"][0], answer["distances"][0]
            parsed = zip(map(parsed_row, names), distances, strict=True)
            near = best_of_entries(
                NearEntry(name, 1.0 - float(distance), number)
                for (name, number), distance in parsed
                if name not in filters.without_ids
            )
            if len(near) >= limit or len(names) < depth:
                return near[:limit]
            depth *= 4

    def _read(self) -> None:
        self._metadata: dict[str, str | int] = dict(self._collection.metadata or {})
        self._seq = int(self._metadata.get("seq", 0))
        self._groups = set(json.loads(str(self._metadata.get("groups", "[]"))))
        self._read_at = time.monotonic()

    def _keep(self, seq: int, groups: set[str]) -> None:
        self._metadata |= {"seq": seq, "groups": json.dumps(sorted(groups))}
        self._collection.modify(metadata=self._metadata)
        self._seq, self._groups = seq, groups


def open_server(address: str, key: str, fingerprint: str, say: Say | None = None) -> ServerStore:
    """The index `key` at the server `address` (`http://host:port`), made where there is none.

    `say` gets one line where that is one beside another. Raises SettingError for a server that
    is not there.
    """
    import chromadb
    from chromadb.config import Settings
    from chromadb.errors import ChromaError

    parts = urlsplit(address)
    ssl = parts.scheme == "https"
    name = f"{COLLECTION}-{key}"
    try:
        client = chromadb.HttpClient(
            host=parts.hostname or "",
            port=parts.port or (443 if ssl else 8000),
            ssl=ssl,
            settings=Settings(anonymized_telemetry=False),
        )
        names = {str(collection.name) for collection in client.list_collections()}
        if say is not None and name not in names and any(n.startswith(COLLECTION) for n in names):
            say("Vector index was made by another embedder or version: a new one is made.")
        collection = client.get_or_create_collection(
            name,
            metadata={"fingerprint": fingerprint, "format": FORMAT},
            configuration={"hnsw": HNSW},
            embedding_function=None,
        )

        def again() -> Collection:
            return client.get_collection(name, embedding_function=None)

        return ServerStore(collection, client.get_max_batch_size(), again)
    except (ChromaError, ValueError, OSError) as error:
        raise SettingError(
            f"Cannot use the Chroma server {address!r}: {one_line(error, 120)}. Expected one that "
            "answers at http://HOST:PORT. Next: start it with 'chroma run', or give a folder."
        ) from error


BATCH_ROWS = 1024
"""Rows embedded and written at once; it bounds the memory of a catch-up."""
NOTHING = np.zeros((0, 1), dtype=np.float32)
Progress = Callable[[int, int], None]
"""Called with the sequence number reached and the truth's last."""


class DenseIndex:
    """The passages of all entries, as vectors of `embedder` in `store`."""

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    @property
    def seq(self) -> int:
        """How far in the truth this index is."""
        return self._store.seq

    def facts(self, entry_id: str) -> Facts | None:
        """What filters ask of an entry; None where this index does not keep it at hand."""
        return self._store.facts(entry_id)

    def catch_up(self, truth: Changes, progress: Progress | None = None, wait: bool = True) -> int:
        """Take in what changed in `truth` since; the sequence number that was reached.

        It is written after each batch, so a kill costs one batch at most. One process writes at a
        time; where another one does, wait for it, or return at once if `wait` is False.
        """
        with self._store.writing(wait) as ours:
            if ours and truth.last_seq < self.seq:
                # This index followed another truth, which was further on: begin again.
                self._store.clear()
            while ours and (batch := list(truth.entries(self.seq, BATCH_ROWS))):
                for part in _parts(batch, BATCH_ROWS):
                    self._store.replace(self._rows(part), part[-1][0])
                    if progress is not None:
                        progress(self.seq, truth.last_seq)
            return self.seq

    def search(
        self, vector: Vectors, limit: int, filters: Filters | None = None
    ) -> list[NearEntry]:
        """The `limit` entries nearest to `vector` (float32 [width]), nearest first, ties by id."""
        if limit < 1 or not np.any(vector):
            return []
        return self._store.nearest(vector, limit, filters or Filters())

    def _rows(self, part: Sequence[tuple[int, Entry | Removed]]) -> list[Rows]:
        """What each entry of `part` is now; all its passages are embedded together."""
        latest = {change.id: change for _, change in part}
        entries = [change for change in latest.values() if isinstance(change, Entry)]
        texts = [text for entry in entries for text in entry.passages]
        vectors = self._embedder.embed(texts) if texts else NOTHING
        rows: list[Rows] = [
            Rows(name, "", vectors[:0])
            for name, change in latest.items()
            if not isinstance(change, Entry)
        ]
        first = 0
        for entry in entries:
            last = first + len(entry.passages)
            rows.append(Rows(entry.id, group_of(entry), vectors[first:last]))
            first = last
        return rows


def open_vectors(where: Path | str, embedder: Embedder, say: Say | None = None) -> DenseIndex:
    """The index for `embedder` in a folder, or at a Chroma server (`http://host:port`).

    Each embedder has its own index, so another fingerprint fills a new one beside the old. A
    damaged index is left aside and filled anew. `say` gets one line in both cases. Raises
    OutputError for a folder that cannot be written, SettingError for a server that is not there.
    """
    fingerprint = embedder.fingerprint
    key = sha256_text(f"{FORMAT}\0{fingerprint}")[:12]
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        return DenseIndex(open_server(where, key, fingerprint, say), embedder)
    width = embedder.embed([""]).shape[1]
    return DenseIndex(open_folder(Path(where), key, fingerprint, width, say), embedder)


def _parts(
    batch: Sequence[tuple[int, Entry | Removed]], most: int
) -> Iterator[list[tuple[int, Entry | Removed]]]:
    """Runs of changes with at most `most` passages together (one change may have more)."""
    part: list[tuple[int, Entry | Removed]] = []
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
