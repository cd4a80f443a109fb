"""What does an index of vectors hold, and what has a place offer that keeps one?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge.embedding import Vectors
from agentkernel.knowledge.facts import Facts
from agentkernel.knowledge.truth_types import Removed

FORMAT = 3
"""Raised with every change of what is kept: an index of another one is made anew."""
COLLECTION = "agentkernel-vectors"
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
ROWS_AN_ENTRY = 4
"""Rows asked for per entry that is wanted: an entry may come back with several passages."""


class Changes(Protocol):
    """Everything that happened to the entries, in order."""

    @property
    def last_seq(self) -> int: ...

    def entries(self, after_seq: int, limit: int) -> Iterator[tuple[int, Entry | Removed]]: ...


class NearEntry(NamedTuple):
    """An entry, how near its nearest passage lies (cosine, -1 to 1) and which one that is."""

    entry_id: str
    cosine: float
    passage_no: int


@dataclass(frozen=True)
class Rows:
    """What an entry is from now on: row `ENTRY#n` is passage n. `group` is "" where it is gone."""

    entry_id: str
    group: str
    vectors: Vectors
    """float32 [passages, width], unit; zeros for a text without a direction."""

    def directed(self) -> list[int]:
        """The passages that can be near anything."""
        return np.flatnonzero(self.vectors.any(axis=1)).tolist()


class VectorStore(Protocol):
    """A place that keeps the rows of an index, and how far in the truth it is."""

    @property
    def seq(self) -> int: ...

    def facts(self, entry_id: str) -> Facts | None: ...

    def writing(self, wait: bool) -> AbstractContextManager[bool]:
        """Bring what is at hand up to date and keep other writers out: True to one process at a
        time; False where another one writes and `wait` is not set."""

    def clear(self) -> None: ...

    def replace(self, changed: Sequence[Rows], seq: int) -> None:
        """Put each entry's rows in place of those that it has (of one entry only once), then note
        that `seq` is reached. Half of it is mended by doing it again."""

    def nearest(self, vector: Vectors, limit: int, filters: Filters) -> list[NearEntry]:
        """The `limit` entries nearest to `vector` (float32 [width]), nearest first, ties by id."""


def row_id(entry_id: str, number: int) -> str:
    """The name of a row."""
    return f"{entry_id}#{number}"


def parsed_row(row: str) -> tuple[str, int]:
    """The entry's id and the passage's number."""
    name, _, number = row.rpartition("#")
    return name, int(number)


def best_of_entries(rows: Iterator[NearEntry]) -> list[NearEntry]:
    """Of each entry the first of its `rows`, which come nearest first; ties by id."""
    best: dict[str, NearEntry] = {}
    for near in rows:
        best.setdefault(near.entry_id, near)
    return sorted(best.values(), key=lambda near: (-near.cosine, near.entry_id))
