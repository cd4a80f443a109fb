"""Text embedders, and the rows and filter facts that an index of vectors keeps.

The packaged embedder is the mean of learned token vectors: BPE with 8,192 entries, 256
dimensions, fp16 on disk. Nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.errors import MissingDependency, SettingError, one_line
from agentkernel.domain.knowledge import Entry, EntryKind, Filters, Verified
from agentkernel.knowledge.documents import files_sha256
from agentkernel.knowledge.store_schema import Removed

Vectors = NDArray[np.float32]
STATIC_FOLDER = Path(__file__).parent / "embedder"
OTHER_PREFIX = "sentence-transformers:"


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    fingerprint: str
    """Identity of the weights: another fingerprint makes another index."""

    def embed(self, texts: Sequence[str]) -> Vectors: ...


class StaticEmbedder:
    """The mean of learned token vectors: BPE with 8,192 entries, 256 dimensions, fp16 on disk.

    `folder` holds `tokenizer.json` and `model.safetensors` (key `embedding.weight`), which
    `benchmarks/retrieval/train_embedder.py` makes.
    """

    def __init__(self, folder: Path = STATIC_FOLDER) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        files = (folder / "tokenizer.json", folder / "model.safetensors")
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise MissingDependency(
                f"The embedder lacks {missing[0]} in {str(folder)!r}. Expected it in the package. "
                "Next: reinstall agentkernel."
            )
        self._tokenizer = Tokenizer.from_file(str(files[0]))
        self._weight = load_file(str(files[1]))["embedding.weight"].astype(np.float32)
        self.fingerprint = files_sha256(files)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [len(texts), 256]; a text without known tokens gives zeros."""
        vectors = np.zeros((len(texts), self._weight.shape[1]), dtype=np.float32)
        for row, encoded in enumerate(
            self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ):
            if encoded.ids:
                vectors[row] = self._weight[encoded.ids].mean(axis=0)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)


class SentenceTransformerEmbedder:
    """Any sentence-transformers model that lies on this machine, by name or folder."""

    def __init__(self, name: str) -> None:
        try:
            folder = _local_folder(name)
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(folder), local_files_only=True)
        except (ImportError, OSError, ValueError) as error:
            line = one_line(error, 200)
            raise SettingError(
                f"Cannot load the embedder {name!r}: {line}. Expected a sentence-transformers "
                "model in a local folder or cache. Next: give its folder, or 'embedder: static'."
            ) from error
        self.fingerprint = f"{OTHER_PREFIX}{name}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [len(texts), the model's width]."""
        vectors = self._model.encode(
            list(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


@cache
def _packaged() -> StaticEmbedder:
    """The package's own, read once a process: a question in a session waits for it otherwise."""
    return StaticEmbedder()


def _local_folder(name: str) -> Path:
    """`name` as a folder, or the cached copy of that model; the hub is never asked."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"
    return Path(snapshot_download(full, local_files_only=True))


def load_embedder(name: str = "static") -> Embedder:
    """`static` (packaged) or `sentence-transformers:NAME_OR_PATH`; else SettingError."""
    if name == "static":
        return _packaged()
    if name.startswith(OTHER_PREFIX) and name != OTHER_PREFIX:
        return SentenceTransformerEmbedder(name.removeprefix(OTHER_PREFIX))
    raise SettingError(
        f"Unknown embedder {name!r}. Expected 'static' or '{OTHER_PREFIX}NAME_OR_PATH'. "
        "Next: correct 'embedder' in the configuration."
    )


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
    return facts_in(group_of(entry))


def group_of(entry: Entry) -> str:
    """All facts in one string. Entries with the same one pass the same filters, and of many
    thousand entries there are some dozen groups: a filter is asked once for each of these."""
    return json.dumps([entry.kind, entry.verified, entry.licence, sorted(entry.architectures)])


@lru_cache(maxsize=4096)
def facts_in(group: str) -> Facts:
    """The facts that `group_of` wrote. Raises ValueError or TypeError for another text."""
    kind, verified, licence, architectures = json.loads(group)
    return Facts(kind, verified, licence, tuple(architectures))


def passing(groups: Iterable[str], filters: Filters) -> list[str]:
    """Those of `groups` whose entries `filters` let through, their ids aside."""
    return [group for group in groups if facts_in(group).passes(filters)]


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
        that `seq` is reached. Half of it is fixed by doing it again."""

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
