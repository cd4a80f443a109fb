"""The truth about entries in memory, with a plain search by words: what the indexes are built on
in tests and in the speed measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.base import sha256_text
from agentkernel.domain.knowledge import Entry, Filters, Structure
from agentkernel.knowledge.embedding import facts_of
from agentkernel.knowledge.search import identifiers
from agentkernel.knowledge.store_schema import LexicalHit, Removed
from agentkernel.knowledge.vector_index import DenseIndex


class MemoryTruth:
    """Entries by id and in the order in which they last changed."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._changes: dict[str, tuple[int, Entry | Removed]] = {}
        self.last_seq = 0
        for entry in entries:
            self.put(entry)

    def put(self, change: Entry | Removed) -> None:
        self.last_seq += 1
        self._changes.pop(change.id, None)
        self._changes[change.id] = (self.last_seq, change)

    def entries(self, after_seq: int, limit: int) -> Iterator[tuple[int, Entry | Removed]]:
        newer = (change for change in self._changes.values() if change[0] > after_seq)
        return iter([change for change, _ in zip(newer, range(limit), strict=False)])

    def get(self, entry_id: str, /) -> Entry | None:
        change = self._changes.get(entry_id, (0, None))[1]
        return change if isinstance(change, Entry) else None

    def lexical(self, words: str, limit: int, filters: Filters) -> list[LexicalHit]:
        """By the number of words in common."""
        wanted = set(words.lower().split())
        found = []
        for name, (_, change) in self._changes.items():
            if isinstance(change, Entry) and facts_of(change).passes(filters):
                text = f"{change.title} {change.summary} {change.problem} {change.answer}"
                shared = len(wanted & {word.lower() for word in identifiers(text)})
                if shared and name not in filters.without_ids:
                    found.append((name, float(shared)))
        best = sorted(found, key=lambda pair: (-pair[1], pair[0]))[:limit]
        return [LexicalHit(name, score, rank) for rank, (name, score) in enumerate(best, 1)]


class HashEmbedder:
    """Unit sums of a random vector a word: texts with words in common lie near each other."""

    def __init__(self, fingerprint: str = "hash", width: int = 32) -> None:
        self.fingerprint = fingerprint
        self._width = width

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self._width), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                seed = int(sha256_text(self.fingerprint + word)[:8], 16)
                row += np.random.default_rng(seed).standard_normal(self._width)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(norms, 1e-12), dtype=np.float32)


def op_vector(structure: Structure, width: int = 256) -> NDArray[np.float32]:
    """How often each op occurs, at a place that its name gives."""
    vector = np.zeros(width, dtype=np.float32)
    for op, count in Counter(structure.ops).items():
        vector[int(sha256_text(op)[:8], 16) % width] += count
    return vector


def similarity(left: Structure, right: Structure) -> float:
    """Shared ops over all ops, each as often as it occurs."""
    first, second = Counter(left.ops), Counter(right.ops)
    return (first & second).total() / max((first | second).total(), 1)


def entry(
    name: str,
    *passages: str,
    ops: Sequence[str] = (),
    answer: str | None = None,
    **fields: object,
) -> Entry:
    """An entry whose passages are given; its texts are the first of them."""
    text = passages[0] if passages else name
    given = {
        "kind": "pair",
        "title": text,
        "answer": f"answer of {name}" if answer is None else answer,
        "source": "test",
        "licence": "MIT",
        "structure": Structure(ops=tuple(ops)) if ops else None,
    }
    return Entry.model_validate({"id": name, "passages": passages, **given, **fields})


def some_entries() -> list[Entry]:
    """A pair with two passages, one for some architectures, a fix, and a note without words."""
    return [
        entry("pair/softmax", "softmax of rows", "exponent over sum", verified="gpu"),
        entry("pair/gemm", "matrix product", architectures=("hopper", "ada"), licence="BSD"),
        entry("fixes/shape", "shape must be a power of two", kind="fix"),
        entry("notes/empty", ""),
    ]


def find(index: DenseIndex, text: str, limit: int = 5, **filters: object) -> list[str]:
    """The ids of what is nearest to a text in `HashEmbedder`'s vectors."""
    vector = HashEmbedder().embed([text])[0]
    return [near.entry_id for near in index.search(vector, limit, Filters.model_validate(filters))]
