"""Retrieval of knowledge entries for a problem, and the plan's decisions that they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from agentkernel.domain.knowledge import (
    Entry,
    EntryKind,
    Filters,
    Hit,
    Query,
    Score,
    Structure,
    Verified,
    can_follow,
)
from agentkernel.domain.plan import WON, Analysis, Decision, Plan, Retrieved, Won, read_won
from agentkernel.domain.problem import Problem
from agentkernel.domain.target import Target
from agentkernel.knowledge.documents import family_of, hints_for, op_name, patterns_of
from agentkernel.tools.problem.loading import LoadedProblem

DEFAULT = "default"
AUTO = "auto"
"""The value of a key that nobody decided: the coder chooses or searches."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
KINDS: tuple[EntryKind, ...] = ("kernel", "note", "pair")
"""What a plan and a draft are told; fixes are the debugger's."""
PROVEN: tuple[Verified, ...] = ("gpu", "interpreter")
"""Experiences that a run may start from: the others would only stand in their place."""
EXPERIENCES = 2
"""Experiences asked for beside the rest: the nearest, and one more to choose by sizes."""
FAMILY_WORDS: Mapping[str, frozenset[str]] = {
    "gemm": frozenset(("gemm", "matmul", "linear", "mm", "bmm", "addmm", "baddbmm")),
    "attention": frozenset(("attention", "sdpa", "flash")),
    "row": frozenset(
        ("row", "norm", "layernorm", "rmsnorm", "softmax", "reduction", "reduce", "loss")
    )
    | frozenset(("logsumexp", "cumsum", "scan", "argmax", "batchnorm", "groupnorm", "entropy")),
    "column": frozenset(("column", "strided", "reduction", "reduce")),
    "pointwise": frozenset(("pointwise", "broadcast", "activation", "gated", "elementwise")),
}
"""First part of a decision key -> words of the patterns that it bears on."""


class KnowledgeSearch(Protocol):
    """What a knowledge base offers to a retriever."""

    def search(self, query: Query, /) -> tuple[Hit, ...]: ...

    def get(self, entry_id: str, /) -> Entry | None: ...


StructureOf = Callable[[Analysis], Structure]
"""What the captured problem computes."""


class RecordedRetriever:
    """Finds what another run was given, whatever has been learned since; nothing where there is no
    knowledge base, or none is wanted."""

    def __init__(self, found: tuple[Retrieved, ...] = ()) -> None:
        self._found = found

    def retrieve(
        self, problem: LoadedProblem, analysis: Analysis, target: Target
    ) -> tuple[Retrieved, ...]:
        """The same again."""
        return self._found


class KnowledgeRetriever:
    """Asks the knowledge base with what the analysis and the graph say of the problem."""

    def __init__(
        self,
        base: KnowledgeSearch,
        structure_of: StructureOf,
        limit: int = 6,
        experience: bool = False,
    ) -> None:
        """`experience`: what earlier runs learned is found as well."""
        self._base = base
        self._structure_of = structure_of
        self._limit = limit
        self._experience = experience

    def retrieve(
        self, problem: LoadedProblem, analysis: Analysis, target: Target
    ) -> tuple[Retrieved, ...]:
        """At most `limit` entries: experiences that compute the like, then the best of all, and
        always the hardware note of `target`, last where it was not found by itself."""
        if self._limit == 0:
            return ()
        family = family_of(target.arch)
        question = Query(
            text=query_text(analysis),
            structure=self._structure_of(analysis),
            filters=Filters(kinds=KINDS, architecture=family),
            limit=self._limit,
        )
        hits = [*self._experiences(question, family), *self._base.search(question)]
        dtype = main_dtype(problem.problem)
        found = {hit.entry.id: as_retrieved(hit.entry, hit.score, family, dtype) for hit in hits}
        chosen = list(found.values())[: self._limit]
        note = self._base.get(f"notes/{family}")
        if note is not None and note.id not in {item.id for item in chosen}:
            known = found.get(note.id) or as_retrieved(note, Score(fused=0.0), family, dtype)
            chosen = [*chosen[: self._limit - 1], known]
        return tuple(chosen)

    def _experiences(self, question: Query, family: str | None) -> tuple[Hit, ...]:
        if not self._experience or family is None:
            return ()
        filters = Filters(kinds=("experience",), architecture=family, verified=PROVEN)
        asked = question.evolve(filters=filters, limit=EXPERIENCES)
        return self._base.search(asked)


def as_retrieved(entry: Entry, score: Score, family: str | None, dtype: str) -> Retrieved:
    """A hit as a run knows it, with the hints that hold on `family` and for `dtype`."""
    won = winner_of(entry)
    ranks = {
        name: getattr(score, f"{name}_rank")
        for name in ("dense", "lexical", "structural")
        if getattr(score, f"{name}_rank") is not None
    }
    return Retrieved(
        id=entry.id,
        title=entry.title,
        kind=entry.kind,
        source=entry.source,
        licence=entry.licence,
        score=round(score.fused, 4),
        text=entry_text(entry),
        hints=advice_of(entry, family, dtype),
        verified=entry.verified,
        ranks=ranks,
        similarity=score.structural,
        won=won,
    )


def advice_of(entry: Entry, family: str | None, dtype: str) -> dict[str, str]:
    """The hints of an entry that hold on `family` and for `dtype` and that a schedule can follow:
    whoever wrote the entry may have written anything."""
    if entry.kind == "experience":
        return {}
    found = hints_for(entry.hints, family, (dtype,) if dtype else ())
    return {key: value for key, value in found.items() if can_follow(key, value)}


def winner_of(entry: Entry) -> Won | None:
    """What an experience says in figures; None for others, and where it cannot be read."""
    text = entry.hints.get(WON) if entry.kind == "experience" else None
    return None if text is None else read_won(text)


def entry_text(entry: Entry) -> str:
    """The text that stands for an entry: of a pair and an experience both of its sides."""
    if entry.kind not in ("pair", "experience"):
        return entry.answer
    failed = "".join(f"# failed on the way: {line}\n" for line in entry.failures)
    return f"# The module:\n{entry.problem}\n{failed}# Its drop-in:\n{entry.answer}"


def query_text(analysis: Analysis) -> str:
    """The patterns and the ops (the commonest first), as words."""
    ops = sorted(analysis.op_counts, key=lambda name: (-analysis.op_counts[name], name))
    words = [*patterns_of(analysis), *map(op_name, ops)]
    return " ".join(words).replace("_", " ")


def main_dtype(problem: Problem) -> str:
    """The dtype of the first floating input of the primary shape set, "" where none is."""
    for item in problem.shape_sets[0].tensors:
        if item.dtype in FLOATS:
            return item.dtype
    return ""


def apply_hints(plan: Plan, retrieved: Sequence[Retrieved]) -> Plan:
    """The plan with one decision a hint that bears on its patterns, and with what was retrieved.

    The highest-scoring document speaks first for each key. A decision that rests on a rule (any
    `because` but "default") is kept.
    """
    decisions = {item.key: item for item in plan.decisions}
    for key, value, document in _bearing_hints(plan.analysis, retrieved):
        known = decisions.get(key)
        if known is None or known.because == DEFAULT:
            default = known.default if known is not None else AUTO
            decisions[key] = Decision(key=key, value=value, default=default, because=document)
    return plan.evolve(
        decisions=tuple(decisions[key] for key in sorted(decisions)),
        retrieved=tuple(item.id for item in retrieved),
    )


def _bearing_hints(
    analysis: Analysis, retrieved: Sequence[Retrieved]
) -> Iterator[tuple[str, str, str]]:
    """(key, value, document id) of each key's first mention, best document first."""
    seen: set[str] = set()
    patterns = patterns_of(analysis)
    for document in sorted(retrieved, key=lambda item: -item.score):
        for key, value in sorted(document.hints.items()):
            if key not in seen and bears_on(key, patterns):
                seen.add(key)
                yield key, value, document.id


def bears_on(key: str, patterns: Sequence[str]) -> bool:
    """True where the key's family (its first part) is about one of `patterns`, or about all."""
    words = FAMILY_WORDS.get(key.partition(".")[0])
    if words is None:
        return True
    found = {word for name in patterns for word in name.lower().replace(".", "_").split("_")}
    return bool(words & (found | {name.lower() for name in patterns}))
