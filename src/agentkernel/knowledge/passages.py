"""Which entries have one passage that speaks of what is asked?

A long note shares some word with nearly every question. That a few rare words stand together in one
of its paragraphs says more.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.truth_words import distinct_stems, stems_of

K1 = 1.2
B = 0.75
"""BM25's constants, as Robertson and Zaragoza recommend them ("The Probabilistic Relevance
Framework: BM25 and Beyond", 2009): how fast repetitions stop to count, and how much length does."""
SHORTEST = 5
"""Words that a paragraph has at least: less is a heading or the end of a listing."""
KEPT_TEXTS = 16_384
"""Passages whose words are kept between two questions (2 KB each)."""
PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=[-*|#])")


def passages_of(entry: Entry) -> tuple[str, ...]:
    """The passages of `entry`; of a note or a fix also each paragraph of its text, titled."""
    if entry.kind not in ("note", "fix"):
        return entry.passages
    parts = (" ".join(part.split()) for part in PARAGRAPHS.split(entry.answer))
    found = (f"{entry.title}. {part}" for part in parts if part.count(" ") + 1 >= SHORTEST)
    return (*entry.passages, *found)


def by_best_passage(words: str, entries: Iterable[Entry]) -> dict[str, float]:
    """Id -> BM25 of the best passage, for those of `entries` that share a word with `words`, best
    first, ties by id. How rare a word is, these entries alone tell."""
    asked = frozenset(distinct_stems(words))
    passages = [(entry.id, _words(text)) for entry in entries for text in passages_of(entry)]
    if not passages or not asked:
        return {}
    mean = sum(found.length for _, found in passages) / len(passages)
    holding = Counter(word for _, found in passages for word in asked & found.counts.keys())
    rarity = {
        word: math.log(1 + (len(passages) - count + 0.5) / (count + 0.5))
        for word, count in holding.items()
    }
    best: dict[str, float] = {}
    for name, found in passages:
        value = found.bm25(rarity, mean)
        if value > best.get(name, 0.0):
            best[name] = value
    return dict(sorted(best.items(), key=lambda item: (-item[1], item[0])))


class _Words:
    """How often each word occurs in one passage."""

    def __init__(self, words: Sequence[str]) -> None:
        self.counts = Counter(words)
        self.length = len(words)

    def bm25(self, rarity: Mapping[str, float], mean: float) -> float:
        """BM25 for the words of `rarity`; `mean` is the mean length of all passages."""
        damping = K1 * (1 - B + B * self.length / max(mean, 1.0))
        shared = rarity.keys() & self.counts.keys()
        # In a fixed order: a sum of floats depends on it.
        return sum(
            rarity[word] * self.counts[word] * (K1 + 1) / (self.counts[word] + damping)
            for word in sorted(shared)
        )


@lru_cache(maxsize=KEPT_TEXTS)
def _words(text: str) -> _Words:
    return _Words(tuple(stems_of(text)))
