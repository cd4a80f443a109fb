"""An index of vectors in a folder, which several processes read and write."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentkernel.domain.errors import one_line
from agentkernel.domain.knowledge import Filters
from agentkernel.knowledge.damage import database_damage, keeping, refuse_failing_disk
from agentkernel.knowledge.embedding import Vectors
from agentkernel.knowledge.facts import Facts, passing
from agentkernel.knowledge.truth_types import Say
from agentkernel.knowledge.vector_ledger import Ledger, database_unchanged, graph_damage
from agentkernel.knowledge.vector_types import (
    COLLECTION,
    FORMAT,
    HNSW,
    ROWS_AN_ENTRY,
    NearEntry,
    Rows,
    best_of_entries,
    parsed_row,
    row_id,
)
from agentkernel.storage.disk import open_append, refuse_strange

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
        with open_append(self._lock) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            # Writing from an old state would undo what another process wrote.
            self._follow(at_once=True)
            yield True

    @without_panic()
    def clear(self) -> None:
        while names := self._collection.get(limit=self._most, include=[])["ids"]:
            self._collection.delete(ids=names)
        self._ledger.clear()

    @without_panic()
    def replace(self, changed: Sequence[Rows], seq: int) -> None:
        """Old rows go first and the number is noted last: a repeat then mends a half batch."""
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
        with open_append(lock) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
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
