"""Which three things are worth trying on this problem, in which order, and why?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentkernel.agents.experience import follow_experience, starting_experience, without_losers
from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.agents.retriever import bears_on, main_dtype
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved, RooflineClass
from agentkernel.domain.problem import Problem
from agentkernel.domain.target import Target
from agentkernel.knowledge.documents import family_of
from agentkernel.knowledge.patterns import patterns_of
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.roofline.roofline import least_estimate_us

Hypotheses = Callable[[LoadedProblem, Target], tuple[Hypothesis, ...]]
"""What a coder could try on a problem, best first."""

MOST = 3
SHORT_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
FOCUS: dict[RooflineClass, str] = {
    "memory": "fewest bytes",
    "compute": "tensor cores",
    "mixed": "fusion",
    "latency": "fewest launches",
}
MODEL_IDEAS = (
    Hypothesis(strategy="one fused kernel", reason="every value crosses memory once"),
    Hypothesis(
        strategy="two passes", reason="statistics first, then the elements, each pass coalesced"
    ),
    Hypothesis(strategy="tiled", reason="tiles that fit registers and shared memory"),
)
"""What a model is asked to try where the coder names no hypotheses of its own."""
AUTO = "auto"
"""The coder's own choice, or its search's."""


class RulesPlanner:
    """Plans by roofline class, op pattern and history; the coder says what it can try."""

    def __init__(self, hypotheses: Hypotheses, most: int = MOST) -> None:
        """`hypotheses` asks the coder in use what it could try; a plan names `most` of it."""
        self._hypotheses = hypotheses
        self._most = most

    def plan(
        self,
        problem: LoadedProblem,
        analysis: Analysis,
        target: Target,
        goals: Goals,
        history: Sequence[Attempt],
        retrieved: Sequence[Retrieved],
        exhausted: Sequence[str] = (),
    ) -> Plan:
        """The hypotheses not tried yet, fastest predicted first, with the decisions.

        Where an experience is near enough, a first plan begins with the strategy that won there.
        """
        tried = {*(item.candidate.strategy for item in history), *exhausted}
        offered = self._hypotheses(problem, target)
        fresh = [item for item in offered if item.strategy not in tried]
        predicted = [predict(item, analysis) for item in fresh]
        ranked = sorted(predicted, key=lambda item: item.predicted_us or 0.0)
        start = starting_experience(retrieved, family_of(target.arch), problem.problem)
        followed = follow_experience(ranked, start) if start is not None and not tried else None
        if start is not None and followed is None:
            ranked = without_losers(ranked, start, history)
        return Plan(
            analysis=analysis,
            hypotheses=tuple((followed or ranked)[: self._most]),
            fallback=tuple(ranked[: self._most]) if followed else (),
            decisions=default_decisions(problem.problem, analysis, goals),
            retrieved=tuple(item.id for item in retrieved),
        )


def predict(hypothesis: Hypothesis, analysis: Analysis) -> Hypothesis:
    """Fill in `predicted_us` where the coder gave none: the least that a candidate is estimated at,
    by the model of time that candidates and eager are estimated with."""
    if hypothesis.predicted_us is not None:
        return hypothesis
    return hypothesis.model_copy(update={"predicted_us": least_estimate_us(analysis)})


def default_decisions(problem: Problem, analysis: Analysis, goals: Goals) -> tuple[Decision, ...]:
    """The choices that hold where no document says otherwise."""
    patterns = patterns_of(analysis)
    dtype = SHORT_DTYPES.get(main_dtype(problem), "fp32")
    keys = (
        f"gemm.{dtype}.tile",
        f"gemm.{dtype}.num_warps",
        f"gemm.{dtype}.num_stages",
        "row.num_warps",
        "row.persistent_limit",
    )
    choices = {key: AUTO for key in keys if bears_on(key, patterns)}
    choices |= {"focus": FOCUS[analysis.roofline], "precision": goals.precision}
    return tuple(
        Decision(key=key, value=value, default=value, because="default")
        for key, value in sorted(choices.items())
    )
