"""Which documents bear on a problem, and what do they advise for it?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.plan import Retrieved
from agentkernel.knowledge.documents import Document, family_of, hints_for
from agentkernel.knowledge.embedding import Embedder

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

PATTERN_BOOST = 0.35
"""Added for a share of the query's patterns that the document covers (times that share)."""
FOCUS_BOOST = 0.4
"""Added for the share of the document's patterns that the query asks for (times that share)."""
DTYPE_BOOST = 0.05
OTHER_DTYPE = -0.15
ARCHITECTURE_BOOST = 0.15
OTHER_ARCHITECTURE = -0.5
"""A document for other architectures only is of little use."""


class KnowledgeIndex:
    """A Chroma collection with one row a passage, and the documents that the rows belong to."""

    def __init__(
        self, collection: Collection, documents: Sequence[Document], embedder: Embedder
    ) -> None:
        self._collection = collection
        self._documents = {document.id: document for document in documents}
        self._embedder = embedder

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all documents that can be found, sorted."""
        rows = self._collection.get(include=["metadatas"])["metadatas"] or []
        return tuple(sorted({str(row["document"]) for row in rows}))

    def remove(self, document_id: str) -> None:
        """Take one document out of this index; it comes back when the index is rebuilt."""
        self._collection.delete(where={"document": document_id})

    def search(
        self,
        query: str,
        *,
        architecture: str,
        patterns: Sequence[str],
        dtype: str,
        limit: int = 6,
    ) -> tuple[Retrieved, ...]:
        """The `limit` best documents, best first; the architecture's hardware note is always one.

        `architecture` is Triton's name ("90", "gfx942") or a family ("hopper"); `dtype` is torch's
        name without "torch." or "". A score is the best passage's cosine similarity plus boosts
        for patterns, dtype and architecture. Hints are those that hold for both.
        """
        family = family_of(architecture)
        dtypes = (dtype,) if dtype else ()
        similar = self._similarities(query)
        scored = {
            name: similar[name] + _boost(self._documents[name], family, patterns, dtype)
            for name in similar
        }
        order = sorted(scored, key=lambda name: (-scored[name], name))
        chosen = order[:limit]
        note = f"notes/{family}"
        if chosen and note in scored and note not in chosen:
            chosen = [*order[: limit - 1], note]
        return tuple(
            _retrieved(self._documents[name], scored[name], family, dtypes) for name in chosen
        )

    def _similarities(self, query: str) -> dict[str, float]:
        """Document id -> cosine similarity of its best passage with `query`."""
        count = self._collection.count()
        if count == 0:
            return {}
        answer = self._collection.query(
            query_embeddings=self._embedder.embed([query]),
            n_results=count,
            include=["metadatas", "distances"],
        )
        best: dict[str, float] = {}
        for row, distance in zip(
            (answer["metadatas"] or [[]])[0], (answer["distances"] or [[]])[0], strict=True
        ):
            name = str(row["document"])
            if name in self._documents:
                best[name] = max(best.get(name, -1.0), 1.0 - float(distance))
        return best


def _boost(document: Document, family: str | None, patterns: Sequence[str], dtype: str) -> float:
    boost = PATTERN_BOOST * pattern_overlap(patterns, document.patterns)
    boost += FOCUS_BOOST * pattern_overlap(document.patterns, patterns)
    if dtype and document.dtypes:
        boost += DTYPE_BOOST if dtype in document.dtypes else OTHER_DTYPE
    if document.architectures and family is not None:
        boost += ARCHITECTURE_BOOST if family in document.architectures else OTHER_ARCHITECTURE
    return boost


def pattern_overlap(wanted: Sequence[str], offered: Sequence[str]) -> float:
    """The share of `wanted` patterns that `offered` covers, 0 to 1; words count, not spelling."""
    if not wanted or not offered:
        return 0.0
    known = [_words(name) for name in offered]
    hits = [max(_likeness(_words(name), other) for other in known) for name in wanted]
    return sum(hits) / len(hits)


def _likeness(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(len(left | right), 1)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


def _retrieved(
    document: Document, score: float, family: str | None, dtypes: Sequence[str]
) -> Retrieved:
    return Retrieved(
        id=document.id,
        title=document.title,
        kind=document.kind,
        source=document.source,
        licence=document.licence,
        score=round(score, 4),
        text=document.text,
        hints=hints_for(document, family, dtypes),
    )
