"""Which three things are worth trying on this problem, in which order, and why?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved, RooflineClass
from agentkernel.domain.target import Target
from agentkernel.tools.problems import LoadedProblem

Hypotheses = Callable[[LoadedProblem, Target], tuple[Hypothesis, ...]]
"""What a coder could try on a problem, best first."""

MOST = 3
EFFICIENCY: dict[RooflineClass, float] = {
    "memory": 0.9,
    "compute": 0.7,
    "mixed": 0.75,
    "latency": 0.5,
}
"""Share of the roofline that a good kernel of the class reaches; for ranking only."""
CLASS_DEFAULTS: dict[RooflineClass, dict[str, str]] = {
    "memory": {"focus": "bytes", "num_warps": "auto", "num_stages": "auto"},
    "compute": {"focus": "tensor cores", "num_warps": "auto", "num_stages": "auto"},
    "mixed": {"focus": "fusion", "num_warps": "auto", "num_stages": "auto"},
    "latency": {"focus": "launches", "num_warps": "auto", "num_stages": "auto"},
}


class RulesPlanner:
    """Plans by roofline class, op pattern and history; the coder says what it can try."""

    def __init__(self, hypotheses: Hypotheses) -> None:
        """`hypotheses` asks the coder in use what it could try."""
        self._hypotheses = hypotheses

    def plan(
        self,
        problem: LoadedProblem,
        analysis: Analysis,
        target: Target,
        goals: Goals,
        history: Sequence[Attempt],
        retrieved: Sequence[Retrieved],
    ) -> Plan:
        """At most three hypotheses not tried yet, fastest predicted first, with the decisions."""
        tried = {item.candidate.strategy for item in history}
        offered = self._hypotheses(problem, target)
        fresh = [item for item in offered if item.strategy not in tried]
        predicted = [predict(item, analysis) for item in fresh]
        ranked = sorted(predicted, key=lambda item: item.predicted_us or 0.0)
        return Plan(
            analysis=analysis,
            hypotheses=tuple(ranked[:MOST]),
            decisions=default_decisions(analysis, goals),
            retrieved=tuple(item.id for item in retrieved),
        )


def predict(hypothesis: Hypothesis, analysis: Analysis) -> Hypothesis:
    """Fill in `predicted_us` (estimated, from the roofline) where the coder gave none."""
    if hypothesis.predicted_us is not None:
        return hypothesis
    time_us = analysis.bound_us / EFFICIENCY[analysis.roofline]
    return hypothesis.model_copy(update={"predicted_us": time_us})


def default_decisions(analysis: Analysis, goals: Goals) -> tuple[Decision, ...]:
    """The choices that hold where no document says otherwise."""
    choices = CLASS_DEFAULTS[analysis.roofline] | {"precision": goals.precision}
    return tuple(
        Decision(key=key, value=value, default=value, because="default")
        for key, value in sorted(choices.items())
    )
