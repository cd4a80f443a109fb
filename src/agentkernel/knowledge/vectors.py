"""Which passages lie nearest to a vector, and how does that index follow the truth?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from agentkernel.domain.base import sha256_text
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge.embedding import Embedder, Vectors
from agentkernel.knowledge.facts import Facts, group_of
from agentkernel.knowledge.truth_types import Removed, Say
from agentkernel.knowledge.vector_folder import open_folder
from agentkernel.knowledge.vector_server import open_server
from agentkernel.knowledge.vector_types import FORMAT, Changes, NearEntry, Rows, VectorStore

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
