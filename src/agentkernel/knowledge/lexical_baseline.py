"""How far does a well-tuned search by words alone go? The bar that the hybrid has to clear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from agentkernel.domain.errors import MissingDependency
from agentkernel.domain.knowledge import Entry, Query
from agentkernel.knowledge.evaluation import LabelledQuestion, SearchOutcome, evaluate
from agentkernel.knowledge.truth_words import words_of

K1 = (0.6, 0.9, 1.2, 1.6, 2.2)
B = (0.2, 0.4, 0.6, 0.75, 0.9)
FIELDS = ("title", "passages", "all")
MORE = 8
"""So many times the hits asked for are drawn, as filters leave some out afterwards."""


class Tuning(NamedTuple):
    """BM25's two constants, and which text of an entry is indexed."""

    k1: float
    b: float
    field: str


class Bm25:
    """The library bm25s over entries; identifiers are split as the truth splits them."""

    def __init__(self, entries: Iterable[Entry], tuning: Tuning) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MissingDependency(
                "The baseline of 'knowledge eval' needs the package bm25s. "
                "Next: pip install 'agentkernel[eval]'."
            ) from error
        self._entries = tuple(entries)
        self._index = bm25s.BM25(k1=tuning.k1, b=tuning.b)
        texts = [list(words_of(_text(entry, tuning.field))) for entry in self._entries]
        if texts:
            self._index.index(texts, show_progress=False)

    def search(self, query: Query) -> Sequence[str]:
        """Ids of the `query.limit` best that pass its filters."""
        words = list(words_of(f"{query.text} {query.words if query.words != query.text else ''}"))
        if not words or not self._entries:
            return ()
        count = min(len(self._entries), MORE * query.limit)
        places, scores = self._index.retrieve([words], k=count, show_progress=False)
        found = (
            self._entries[int(place)]
            for place, score in zip(places[0], scores[0], strict=True)
            if score > 0
        )
        kinds = query.filters.kinds
        return [entry.id for entry in found if not kinds or entry.kind in kinds][: query.limit]


def tuned_bm25(
    entries: Sequence[Entry], questions: Sequence[LabelledQuestion]
) -> tuple[Tuning, SearchOutcome]:
    """The best of a grid over constants and fields, by recall@5, then MRR. It is tuned on the very
    questions that it is then asked: no search by words of this kind does better."""
    best: tuple[Tuning, SearchOutcome] | None = None
    for values in product(K1, B, FIELDS):
        tuning = Tuning(*values)
        found = evaluate("lexical only", questions, Bm25(entries, tuning).search)
        if best is None or _merit(found) > _merit(best[1]):
            best = tuning, found
    if best is None:
        raise ValueError("the grid is empty")
    return best


def _merit(found: SearchOutcome) -> tuple[float, float]:
    every = found.by_kind["all"]
    return every.recall[5], every.mrr


def _text(entry: Entry, field: str) -> str:
    if field == "title":
        return f"{entry.title} {entry.summary}"
    if field == "passages":
        return " ".join(entry.passages)
    return " ".join((entry.title, entry.summary, *entry.passages, entry.problem, entry.answer))
