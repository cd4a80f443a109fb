"""Hybrid search: dense, lexical, passage and structure lists, joined by reciprocal rank fusion.

A long note shares some word with nearly every question. Best-passage ranking therefore scores
the few rare words that occur together in one paragraph (BM25 of the best passage).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Entry, Filters, Hit, Query, Score, Structure
from agentkernel.knowledge.embedding import Changes, Embedder, Facts, NearEntry, Vectors, facts_of
from agentkernel.knowledge.graph_structure import composite_names
from agentkernel.knowledge.store_schema import LexicalHit, distinct_stems, stems_of
from agentkernel.knowledge.structure_index import Floats, SimilarEntry

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


CHARACTERS_A_TOKEN = 4
MOST_WORDS = 64
"""Identifiers taken from a text for the lexical list; a long module repeats itself after that."""
WORD = re.compile(r"[^\W_]\w*")
ERROR_TEXT = re.compile(
    r"Traceback|\b\w+(?:Error|Exception|Warning|Failure)\b|\bUnsupported[A-Z]\w+|\berror:"
    r"|\b(?:illegal|misaligned|unspecified) \w+|\bout of (?:memory|resource|bounds)|\bfailed\b"
    r"|^[ \t]*\^+[ \t]*$",
    re.ASCII | re.MULTILINE,
)
"""What tells an error message from words and code; a line of carets points at code above it."""
FRAME = re.compile(r'^Traceback \(most.*\n?|^[ \t]*File "[^"\n]*", line \d+.*\n?', re.MULTILINE)
"""The head of a traceback, and that of a frame. The code below stays: it says what was called."""
COMMON_WORDS = frozenset(
    {"None", "a", "an", "and", "are", "as", "at", "be", "by", "class", "def", "for", "forward"}
    | {"from", "import", "in", "init__", "is", "it", "nn", "not", "of", "on", "or", "return"}
    | {"self", "super", "that", "the", "this", "to", "torch", "with"}
)
"""In nearly every entry: they tell none from another and make the lexical list slower."""
QuestionKind = Literal["error", "structure", "words"]


class EntryStore(Changes, Protocol):
    """The entries themselves, and the search by words over them."""

    def get(self, entry_id: str, /) -> Entry | None: ...

    def lexical(self, words: str, limit: int, filters: Filters) -> list[LexicalHit]: ...


class DenseSearch(Protocol):
    """What `vectors.DenseIndex` offers to a search."""

    def search(
        self, vector: Vectors, limit: int, filters: Filters | None = None
    ) -> list[NearEntry]: ...

    def facts(self, entry_id: str) -> Facts | None: ...


class NoVectors:
    """An index of vectors that finds nothing."""

    def search(
        self, vector: Vectors, limit: int, filters: Filters | None = None
    ) -> list[NearEntry]:
        """Nothing."""
        return []

    def facts(self, entry_id: str) -> Facts | None:
        """Nothing that is at hand."""
        return None


class StructureSearch(Protocol):
    """What `structures.StructureIndex` offers to a search."""

    def search(
        self, structure: Structure, limit: int, filters: Filters | None = None
    ) -> list[SimilarEntry]: ...

    def unit_vector(self, structure: Structure) -> Floats: ...


Literally = Callable[[str], Sequence[str]]
"""The ids of entries that name a message literally, the surest first."""


def no_literal_matches(message: str) -> Sequence[str]:
    """Nobody knows it."""
    return ()


class Weights(Frozen):
    """How much each list counts in the fusion."""

    dense: float = Field(ge=0)
    lexical: float = Field(ge=0)
    structural: float = Field(ge=0)
    passage: float = Field(default=0.0, ge=0)
    """The words of the best passage, over the entries of the dense and lexical lists."""
    k: float = Field(default=5.0, gt=0)
    """Reciprocal rank fusion adds weight / (k + rank) for each list (Cormack, Clarke and Buettcher,
    "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009,
    with 60, for many lists of like quality). Here are two or three: the first of a good list is to
    stay ahead of the fifth of all."""


class Mixture(Frozen):
    """How the lists become one. The values were chosen by `knowledge.evaluation` over both labelled
    sets below benchmarks/retrieval; what either set alone chooses does as well on the other."""

    depth: int = Field(default=60, ge=1)
    """Entries asked of each list."""
    words: Weights = Weights(dense=1.0, lexical=1.0, structural=0.0, passage=1.0, k=10.0)
    error: Weights = Weights(dense=0.3, lexical=0.5, structural=0.0, passage=1.0)
    """An error's own words name it best."""
    structure: Weights = Weights(dense=0.6, lexical=0.5, structural=1.5)
    """What is computed says more than what it is called."""
    verified_gpu: float = Field(default=0.10, ge=0)
    """Added to 1 and multiplied with the fused value, as the next two are: it moves an entry past
    a neighbour of about the same rank, never past a much better one."""
    verified_interpreter: float = Field(default=0.05, ge=0)
    architecture: float = Field(default=0.05, ge=0)
    """For an entry that names the architecture asked for (not one for all of them)."""
    diversity: float = Field(default=0.15, ge=0, le=1)
    """Share of maximal marginal relevance that counts against likeness to earlier hits (Carbonell
    and Goldstein, "The Use of MMR", SIGIR 1998); 0: by the fused value alone."""
    pool: int = Field(default=4, ge=1)
    """Entries read for each hit that is wanted: what diversity and the budget choose from."""

    def weights(self, kind: QuestionKind) -> Weights:
        """The weights for that kind of question."""
        return {"error": self.error, "structure": self.structure, "words": self.words}[kind]


_MEANING = Weights(dense=1.0, lexical=0.0, structural=0.0)
DENSE_ONLY = Mixture(words=_MEANING, error=_MEANING, structure=_MEANING, diversity=0.0)
"""By meaning alone: what the dense index is worth by itself."""


class Ranked(NamedTuple):
    """One list: the ids, best first, and the value that each was ordered by."""

    ids: tuple[str, ...]
    values: tuple[float, ...]


NO_LIST = Ranked((), ())


@dataclass(frozen=True)
class Retriever:
    """Searches the truth by words and both indexes, and makes one answer of the three lists."""

    truth: EntryStore
    dense: DenseSearch
    structures: StructureSearch
    embedder: Embedder
    mixture: Mixture = field(default_factory=Mixture)
    literal: Literally = no_literal_matches

    def without_dense(self) -> Retriever:
        """The same search where the vectors cannot be read."""
        return replace(self, dense=NoVectors())

    def search(self, query: Query) -> tuple[Hit, ...]:
        """At most `query.limit` hits, best first; the same question over the same store has the
        same answer. An empty question or store gives none. The budget leaves whole hits out, but
        never the first."""
        near = self._near(query)
        weights = self.mixture.weights(question_kind(query))
        lists = {
            "dense": Ranked(tuple(n.entry_id for n in near), tuple(n.cosine for n in near)),
            "lexical": self._lexical(query),
            "structural": self._structural(query),
        }
        if weights.passage:
            names = dict.fromkeys((*lists["lexical"].ids, *lists["dense"].ids))
            lists["passage"] = self._by_passage(query, tuple(names))
        scores = fuse(lists, weights, weights.k)
        passages = {n.entry_id: n.passage_no for n in near}
        pool = self._pool(query, scores)
        chosen = self._diverse(pool, query.limit if query.tokens is None else len(pool))
        return tuple(
            Hit(entry=entry, score=score, passage=_passage(entry, passages.get(entry.id)))
            for entry, score in _within(chosen, query.tokens, query.limit)
        )

    def _near(self, query: Query) -> list[NearEntry]:
        text = embedded_text(query)
        if not text.strip():
            return []
        vector = self.embedder.embed([text])[0]
        return self.dense.search(vector, self.mixture.depth, query.filters)

    def _lexical(self, query: Query) -> Ranked:
        words = asked_words(query)
        if not words:
            return NO_LIST
        found = self.truth.lexical(words, self.mixture.depth, query.filters)
        return self._literal_first(query, {item.id: item.score for item in found})

    def _by_passage(self, query: Query, names: Sequence[str]) -> Ranked:
        """Those of `names` by the words of their best passage."""
        entries = [entry for name in names if (entry := self.truth.get(name)) is not None]
        return self._literal_first(query, by_best_passage(asked_words(query), entries))

    def _literal_first(self, query: Query, values: dict[str, float]) -> Ranked:
        first = self._said_literally(query, max(values.values(), default=1.0))
        return Ranked(*zip(*(first | values).items(), strict=True)) if first or values else NO_LIST

    def _said_literally(self, query: Query, value: float) -> dict[str, float]:
        """Who knows this very message comes before who shares words with it."""
        if not query.words:
            return {}
        return {name: value for name in self.literal(query.words) if self._allowed(name, query)}

    def _allowed(self, name: str, query: Query) -> bool:
        facts = self._facts(name)
        without = query.filters.without_ids
        return name not in without and facts is not None and facts.passes(query.filters)

    def _structural(self, query: Query) -> Ranked:
        if query.structure is None or not query.structure.ops:
            return NO_LIST
        found = self.structures.search(query.structure, self.mixture.depth, query.filters)
        return Ranked(tuple(a.entry_id for a in found), tuple(a.value for a in found))

    def _facts(self, name: str) -> Facts | None:
        facts = self.dense.facts(name)
        if facts is None:
            entry = self.truth.get(name)
            facts = facts_of(entry) if entry is not None else None
        return facts

    def _pool(self, query: Query, scores: dict[str, Score]) -> list[tuple[Entry, Score]]:
        """The best entries after the boosts, as the truth has them now; of equal answers one.

        An index may lag behind the truth: what was superseded since, or no longer passes the
        filters, is left out here.
        """
        boosted = {
            name: score.evolve(fused=score.fused * self._boost(name, query.filters))
            for name, score in scores.items()
        }
        most = self.mixture.pool * query.limit
        pool: list[tuple[Entry, Score]] = []
        answers: set[str] = set()
        for name in sorted(boosted, key=lambda name: (-boosted[name].fused, name)):
            entry = self.truth.get(name)
            if entry is None or name in query.filters.without_ids:
                continue
            # Answers that differ in white space alone are one.
            answer = " ".join(entry.answer.split())
            if answer in answers or not facts_of(entry).passes(query.filters):
                continue
            answers.add(answer)
            pool.append((entry, boosted[name]))
            if len(pool) == most:
                break
        return pool

    def _boost(self, name: str, filters: Filters) -> float:
        facts = self._facts(name)
        if facts is None:
            return 1.0
        boost = 1.0
        if facts.verified == "gpu":
            boost += self.mixture.verified_gpu
        elif facts.verified == "interpreter":
            boost += self.mixture.verified_interpreter
        if filters.architecture is not None and filters.architecture in facts.architectures:
            boost += self.mixture.architecture
        return boost

    def _diverse(self, pool: Sequence[tuple[Entry, Score]], most: int) -> list[tuple[Entry, Score]]:
        """`pool` by maximal marginal relevance: at each step what is good and unlike the rest."""
        share = self.mixture.diversity
        if not pool or share == 0.0:
            return list(pool[:most])
        best = pool[0][1].fused
        worth = np.array([score.fused / best for _, score in pool])
        alike = self._likeness([entry for entry, _ in pool])
        nearest = np.zeros(len(pool))
        left = np.ones(len(pool), dtype=bool)
        chosen: list[tuple[Entry, Score]] = []
        while len(chosen) < min(most, len(pool)):
            value = np.where(left, (1.0 - share) * worth - share * nearest, -np.inf)
            # The first of equal ones: the pool is by fused value, then by id.
            place = int(np.argmax(np.round(value, 9)))
            chosen.append(pool[place])
            left[place] = False
            nearest = np.maximum(nearest, alike[place])
        return chosen

    def _likeness(self, entries: Sequence[Entry]) -> Floats:
        """Cosine of the op vectors, each with each; 0 where a structure is not known."""
        known = [
            None if entry.structure is None else self.structures.unit_vector(entry.structure)
            for entry in entries
        ]
        width = max((len(vector) for vector in known if vector is not None), default=1)
        blank = np.zeros(width, dtype=np.float32)
        matrix = np.stack([blank if vector is None else vector for vector in known])
        return np.asarray(matrix @ matrix.T, dtype=np.float32)


def embedded_text(query: Query) -> str:
    """What is embedded of a question: its words, or what its code computes. Code itself is mostly
    names and punctuation, which tell little."""
    structure = query.structure
    if structure is not None and structure.ops:
        return structure_words(structure)
    return error_words(query.text) if ERROR_TEXT.search(query.text) else query.text


def error_words(error: str) -> str:
    """An error's own words: without the files and lines of its traceback, which tell only whose
    program it was."""
    left = FRAME.sub("", error)
    return left if left.strip() else error


def asked_words(query: Query) -> str:
    """The words for the lexical lists: an error's own, or those of the text, with the ops that its
    code was found to compute before its names."""
    text = query.words or query.text
    if question_kind(query) == "error":
        text = error_words(text)
    elif query.structure is not None and query.structure.ops:
        text = f"{structure_words(query.structure)} {text}"
    return " ".join(identifiers(text))


def structure_words(structure: Structure) -> str:
    """What was recognised, then the ops, each once, and what is reduced, in words."""
    names = dict.fromkeys((*composite_names(structure), *structure.ops))
    words = " ".join(names).replace("_", " ")
    known = structure.reduction not in (None, "none")
    return f"{words} {structure.reduction} reduction" if known else words


def question_kind(query: Query) -> QuestionKind:
    """An error message, a problem with a structure, or words."""
    known = query.structure is not None and bool(query.structure.ops)
    # Code that raises an error of its own is no error message.
    if ERROR_TEXT.search(query.words or ("" if known else query.text)):
        return "error"
    return "structure" if known else "words"


def identifiers(text: str) -> tuple[str, ...]:
    """The different words and identifiers of `text` in their order, at most `MOST_WORDS`."""
    found = dict.fromkeys(word for word in WORD.findall(text) if word not in COMMON_WORDS)
    return tuple(found)[:MOST_WORDS]


def fuse(lists: dict[str, Ranked], weights: Weights, k: float) -> dict[str, Score]:
    """Reciprocal rank fusion of the lists, named as `Weights` names them: id -> score."""
    parts: dict[str, dict[str, float | int]] = {}
    fused: dict[str, float] = {}
    for name, ranked in lists.items():
        weight = float(getattr(weights, name))
        if weight == 0.0:
            continue
        for rank, (entry_id, value) in enumerate(_pairs(ranked), start=1):
            parts.setdefault(entry_id, {}).update({name: value, f"{name}_rank": rank})
            fused[entry_id] = fused.get(entry_id, 0.0) + weight / (k + rank)
    return {
        entry_id: Score.model_validate({**part, "fused": fused[entry_id]})
        for entry_id, part in parts.items()
    }


def _pairs(ranked: Ranked) -> Iterable[tuple[str, float]]:
    return zip(ranked.ids, ranked.values, strict=True)


def _passage(entry: Entry, number: int | None) -> str:
    """The passage of that number; "" where the dense list has none, or it changed since."""
    if number is None or number >= len(entry.passages):
        return ""
    return entry.passages[number]


def tokens_of(entry: Entry) -> int:
    """About how many tokens the entry's texts take."""
    length = len(entry.title) + len(entry.summary) + len(entry.problem) + len(entry.answer)
    return -(-length // CHARACTERS_A_TOKEN)


def _within(
    chosen: Sequence[tuple[Entry, Score]], tokens: int | None, limit: int
) -> list[tuple[Entry, Score]]:
    """The first, then each that still fits into the budget."""
    kept: list[tuple[Entry, Score]] = []
    spent = 0
    for entry, score in chosen:
        size = tokens_of(entry)
        if not kept or tokens is None or spent + size <= tokens:
            kept.append((entry, score))
            spent += size
        if len(kept) == limit:
            break
    return kept
