"""Which documents bear on a problem, and which of the plan's decisions do they change?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentkernel.domain.plan import Analysis, Decision, Plan, Retrieved
from agentkernel.domain.problem import Problem
from agentkernel.domain.target import Target
from agentkernel.knowledge.index import KnowledgeIndex
from agentkernel.knowledge.patterns import op_name, patterns_of
from agentkernel.tools.problems import LoadedProblem

DEFAULT = "default"
AUTO = "auto"
"""The value of a key that nobody decided: the coder chooses or searches."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
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


class KnowledgeRetriever:
    """Asks the index with what the analysis says of the problem."""

    def __init__(self, index: KnowledgeIndex, limit: int = 6) -> None:
        self._index = index
        self._limit = limit

    def retrieve(
        self, problem: LoadedProblem, analysis: Analysis, target: Target
    ) -> tuple[Retrieved, ...]:
        """At most `limit` documents, best first; the hardware note of `target` is one of them."""
        return self._index.search(
            query_text(analysis),
            architecture=target.arch,
            patterns=patterns_of(analysis),
            dtype=main_dtype(problem.problem),
            limit=self._limit,
        )


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
    return plan.model_copy(
        update={
            "decisions": tuple(decisions[key] for key in sorted(decisions)),
            "retrieved": tuple(item.id for item in retrieved),
        }
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
