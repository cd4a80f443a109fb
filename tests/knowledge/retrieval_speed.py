"""How fast are the parts of a search, over N made-up entries?

`python -m tests.knowledge.retrieval_speed 20000`. The vectors are clustered
(0.8 of noise around a centre for each 50 rows), the structures random programs over 120 ops with
frequencies that fall as 1/rank. The lexical list comes from memory, for SQLite's is measured
elsewhere.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from agentkernel.domain.knowledge import Entry, Filters, Query, Structure
from agentkernel.knowledge.search import Retriever
from agentkernel.knowledge.structure_index import StructureIndex
from agentkernel.knowledge.vector_index import open_vectors
from tests.knowledge.memory_store import MemoryTruth, entry, op_vector, similarity

WIDTH = 256
QUESTIONS = 100
random = np.random.default_rng(0)


class TableEmbedder:
    """Row n of a table for the text "n ..."."""

    def __init__(self, rows: int) -> None:
        self.fingerprint = f"table {rows}"
        centres = random.standard_normal((max(rows // 50, 1), WIDTH))
        picked = centres[random.integers(0, len(centres), rows)]
        table = picked + 0.8 * random.standard_normal((rows, WIDTH))
        self.table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = [int(text.split()[0]) if text else 0 for text in texts]
        return np.asarray(self.table[rows])


class QuickTruth(MemoryTruth):
    """Without the search by words, which costs this class more than SQLite."""

    names: tuple[str, ...] = ()

    def lexical(self, words: str, limit: int, filters: Filters) -> list[tuple[str, float]]:
        start = int(words.split()[0]) % len(self.names)
        return [(name, -1.0) for name in self.names[start : start + limit]]


def made_up(number: int) -> list[Entry]:
    """Two passages each; one in fifty is a fix, one in seven for hopper only."""
    ops = np.array([f"op{place}" for place in range(120)])
    share = 1.0 / np.arange(1, 121)
    share /= share.sum()
    return [
        entry(
            f"e/{i}",
            f"{2 * i} first",
            f"{2 * i + 1} second",
            ops=tuple(random.choice(ops, random.integers(3, 30), p=share)),
            kind="fix" if i % 50 == 0 else "pair",
            verified="interpreter" if i % 3 == 0 else "no",
            architectures=("hopper",) if i % 7 == 0 else (),
            licence="MIT" if i % 2 else "BSD-3-Clause",
        )
        for i in range(number)
    ]


def timed(name: str, call: Callable[[int], object], count: int = QUESTIONS) -> None:
    call(0)
    took = []
    for number in range(count):
        began = time.perf_counter()
        call(number)
        took.append((time.perf_counter() - began) * 1e3)
    p50, p95 = np.percentile(took, [50, 95])
    print(f"{name:34} p50 {p50:7.1f} ms   p95 {p95:7.1f} ms", flush=True)


def main(number: int, folder: Path) -> None:
    """Build, measure, print."""
    embedder = TableEmbedder(2 * number)
    entries = made_up(number)
    truth = QuickTruth(entries)
    truth.names = tuple(item.id for item in entries)
    began = time.perf_counter()
    dense = open_vectors(folder / "vectors", embedder)
    dense.catch_up(truth)
    print(f"dense: {2 * number} rows in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    structures = StructureIndex(folder / "structures", op_vector, similarity)
    structures.catch_up(truth)
    print(f"structures: {number} rows in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    open_vectors(folder / "vectors", embedder)
    StructureIndex(folder / "structures", op_vector, similarity)
    print(f"opened again in {time.perf_counter() - began:.2f} s")
    noise = 0.04 * random.standard_normal((QUESTIONS, WIDTH)).astype(np.float32)
    asked = embedder.table[random.integers(0, 2 * number, QUESTIONS)] + noise
    shared = 0
    for vector in asked:
        rows = np.argsort(-(embedder.table @ vector))[:40] // 2
        best = list(dict.fromkeys(f"e/{row}" for row in rows.tolist()))[:10]
        shared += len({near.entry_id for near in dense.search(vector, 10)} & set(best))
    print(f"recall@10 of entries against brute force: {shared / 10 / QUESTIONS:.3f}")
    structure = [item.structure or Structure(ops=()) for item in entries[:QUESTIONS]]
    hopper = Filters(architecture="hopper")
    ada = Filters(architecture="ada")
    fixes = Filters(kinds=("fix",))
    timed("dense, 60", lambda n: dense.search(asked[n], 60))
    timed("dense, 60, six of seven pass", lambda n: dense.search(asked[n], 60, ada))
    timed("dense, 60, one of fifty passes", lambda n: dense.search(asked[n], 60, fixes), 30)
    timed("structures, 60", lambda n: structures.search(structure[n], 60))
    retriever = Retriever(truth, dense, structures, embedder)

    def whole(n: int, filters: Filters) -> object:
        text = f"{7 * n} words"
        return retriever.search(Query(text=text, structure=structure[n], filters=filters))

    timed("whole, less lexical", lambda n: whole(n, Filters()))
    timed("whole, less lexical, hopper", lambda n: whole(n, hopper))
    timed("whole, less lexical, ada", lambda n: whole(n, ada))
    timed("whole, less lexical, fixes", lambda n: whole(n, fixes), 30)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(int(sys.argv[1]), Path(place))
