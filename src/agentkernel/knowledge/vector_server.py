"""How does a Chroma server keep an index of vectors, which several machines share?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.knowledge import Filters
from agentkernel.knowledge.embedding import Vectors
from agentkernel.knowledge.facts import Facts, passing
from agentkernel.knowledge.truth_types import Say
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

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

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
        """Old rows go first and the number is noted last: a repeat then mends a half batch."""
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
