"""Recall@k, MRR and latency of the search over labelled questions, with a BM25 baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import MissingDependency, ProblemError, one_line
from agentkernel.domain.knowledge import Entry, Filters, Query, Structure
from agentkernel.knowledge.store_schema import words_of
from agentkernel.storage.configuration import read_yaml

QuestionKind = Literal["module", "symptom", "error"]
FILES: Mapping[QuestionKind, str] = {
    "module": "modules.yaml",
    "symptom": "symptoms.yaml",
    "error": "errors.yaml",
}
JUDGEMENTS = "judgements.yaml"
DEPTHS = (1, 5, 10)
Search = Callable[[Query], Sequence[str]]
"""The ids that a way of searching finds, best first."""
StructureOf = Callable[[str], Structure | None]


class LabelledQuestion(Frozen):
    """A labelled question. `answers` are ids of entries any of which helps; none: a known gap."""

    id: str
    kind: QuestionKind
    query: Query
    answers: tuple[str, ...]


class Score(Frozen):
    """Over some questions that have an answer. Recall@k is the share of them with one of their
    answers among the first k hits; MRR the mean of 1 / rank of the first, 0 past the last depth."""

    questions: int
    recall: dict[int, float]
    mrr: float
    p50_ms: float
    p95_ms: float


class SearchOutcome(Frozen):
    """One way of searching: `by_kind` has "all" beside the kinds. `missed` are the questions
    without an answer among the first 5."""

    name: str
    by_kind: dict[str, Score]
    missed: tuple[str, ...] = ()


class Judgement(Frozen):
    """What a person who read question and entries says: which entries answer it, and why not where
    none does."""

    answers: tuple[str, ...] = ()
    gap: str = ""


class _Row(Frozen):
    """What all three files share; their other fields are for people."""

    id: str
    module: str = ""
    symptom: str = ""
    error: str = ""
    wanted: str
    ops: tuple[str, ...] = ()
    reduction: str = ""
    topic: str = ""
    architecture: str | None = None


def read_questions(folder: Path, structure_of: StructureOf) -> tuple[LabelledQuestion, ...]:
    """The labelled questions of `folder` with their judgements, in the order of the files.

    A module is asked by its text and its structure, an error by its text as words as well. Raises
    ProblemError, with the file's name, for what does not parse and for a question nobody judged.
    """
    judged = _judgements(folder / JUDGEMENTS)
    found: list[LabelledQuestion] = []
    for kind, name in FILES.items():
        for row in _rows(folder / name):
            if row.id not in judged:
                raise ProblemError(
                    f"{str(folder / JUDGEMENTS)!r} has nothing on {row.id!r}. Expected answers or "
                    "a gap for every question. Next: judge it."
                )
            query = _query(kind, row, structure_of)
            found.append(
                LabelledQuestion(id=row.id, kind=kind, query=query, answers=judged[row.id].answers)
            )
    return tuple(found)


def evaluate(name: str, questions: Sequence[LabelledQuestion], search: Search) -> SearchOutcome:
    """Ask every question that has an answer once, and count. Times are wall, in milliseconds."""
    ranks: dict[str, int | None] = {}
    times: dict[str, float] = {}
    asked = [question for question in questions if question.answers]
    for question in asked:
        query = question.query.evolve(limit=max(DEPTHS))
        begin = time.perf_counter()
        ids = search(query)
        times[question.id] = 1e3 * (time.perf_counter() - begin)
        places = [ids.index(answer) + 1 for answer in question.answers if answer in ids]
        ranks[question.id] = min(places, default=None)
    groups = {"all": asked} | {
        kind: [item for item in asked if item.kind == kind]
        for kind in FILES
        if any(item.kind == kind for item in asked)
    }
    return SearchOutcome(
        name=name,
        by_kind={
            kind: score([ranks[item.id] for item in group], [times[item.id] for item in group])
            for kind, group in groups.items()
            if group
        },
        missed=tuple(name for name, rank in ranks.items() if rank is None or rank > DEPTHS[1]),
    )


def score(ranks: Sequence[int | None], times_ms: Sequence[float]) -> Score:
    """Of the rank of each question's first answer, 1-based; None: not found."""
    last = max(DEPTHS)
    inside = [rank if rank is not None and rank <= last else None for rank in ranks]
    return Score(
        questions=len(ranks),
        recall={
            depth: sum(rank is not None and rank <= depth for rank in inside) / len(ranks)
            for depth in DEPTHS
        },
        mrr=sum(1 / rank for rank in inside if rank is not None) / len(ranks),
        p50_ms=float(np.percentile(times_ms, 50)),
        p95_ms=float(np.percentile(times_ms, 95)),
    )


def _query(kind: QuestionKind, row: _Row, structure_of: StructureOf) -> Query:
    filters = Filters(architecture=row.architecture)
    if kind == "module":
        structure = structure_of(row.module)
        kinds = Filters(kinds=("pair", "kernel", "experience"), architecture=row.architecture)
        return Query(text=row.module, structure=structure, filters=kinds)
    if kind == "error":
        return Query(text=row.error, words=row.error, filters=filters)
    return Query(text=row.symptom, filters=filters)


class _Judgements(Frozen):
    judgements: dict[str, Judgement] = Field(default_factory=dict)


def _judgements(path: Path) -> dict[str, Judgement]:
    try:
        return _Judgements(judgements=_loaded(path)).judgements  # type: ignore[arg-type]
    except ValidationError as error:
        raise ProblemError(
            f"{str(path)!r}: {one_line(error)}. Expected answers a question."
        ) from error


def _rows(path: Path) -> list[_Row]:
    rows = _loaded(path)
    try:
        return [_Row.model_validate(row) for row in rows]  # type: ignore[attr-defined]
    except (ValidationError, TypeError) as error:
        raise ProblemError(
            f"{str(path)!r}: {one_line(error)}. Expected a list of questions."
        ) from error


def _loaded(path: Path) -> object:
    try:
        return read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProblemError(
            f"Cannot read {str(path)!r}: {one_line(error)}. Expected labelled questions."
        ) from error


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
                "Next: pip install '.[eval]' in the clone."
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
