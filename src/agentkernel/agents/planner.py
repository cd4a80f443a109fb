"""Planners that offer at most three hypotheses: by rules, by a model, or one turn a plan.

The rules plan by roofline class, op pattern and history. A model's plan falls back to the rules
where its answer is not usable. The turn planner goes on with one open turn a plan once all ideas
are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from agentkernel.agents.answers import ask_or_tell
from agentkernel.agents.history import (
    calibration,
    follow_experience,
    starting_experience,
    tried,
    without_losers,
)
from agentkernel.agents.models.protocol import Model, OnText, ignore
from agentkernel.agents.prompts import inline, render
from agentkernel.agents.protocols import Attempt, Planner, PlanRequest
from agentkernel.agents.retriever import bears_on, main_dtype
from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, RooflineClass
from agentkernel.domain.target import Target
from agentkernel.knowledge.documents import family_of, patterns_of
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.roofline.model import least_estimate_us

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


@dataclass(frozen=True)
class RulesPlanner:
    """Plans by roofline class, op pattern and history; the coder says what it can try."""

    hypotheses: Hypotheses
    most: int = MOST
    """Hypotheses of one plan."""

    def plan(self, request: PlanRequest) -> Plan:
        """The hypotheses not tried yet, fastest predicted first, with the decisions.

        Where an experience is near enough, a first plan begins with the strategy that won there.
        """
        problem, begun = request.problem.problem, request.begun
        offered = self.hypotheses(request.problem, request.target)
        fresh = [predict(item, request.analysis) for item in offered if item.strategy not in begun]
        ranked = sorted(fresh, key=lambda item: item.predicted_us or 0.0)
        start = starting_experience(request.retrieved, family_of(request.target.arch), problem)
        followed = follow_experience(ranked, start) if start is not None and not begun else None
        if start is not None and followed is None:
            ranked = without_losers(ranked, start, request.history)
        made = plan_of(request, tuple((followed or ranked)[: self.most]))
        return made.evolve(fallback=tuple(ranked[: self.most])) if followed else made


def plan_of(request: PlanRequest, hypotheses: tuple[Hypothesis, ...]) -> Plan:
    """The plan to try `hypotheses`, with the choices that hold where no document says otherwise."""
    return Plan(
        analysis=request.analysis,
        hypotheses=hypotheses,
        decisions=_default_decisions(request),
        retrieved=tuple(item.id for item in request.retrieved),
    )


def predict(hypothesis: Hypothesis, analysis: Analysis) -> Hypothesis:
    """Fill in `predicted_us` where the coder gave none: the least that a candidate is estimated at,
    by the model of time that candidates and eager are estimated with."""
    if hypothesis.predicted_us is not None:
        return hypothesis
    return hypothesis.evolve(predicted_us=least_estimate_us(analysis))


def _default_decisions(request: PlanRequest) -> tuple[Decision, ...]:
    patterns = patterns_of(request.analysis)
    dtype = SHORT_DTYPES.get(main_dtype(request.problem.problem), "fp32")
    keys = (
        f"gemm.{dtype}.tile",
        f"gemm.{dtype}.num_warps",
        f"gemm.{dtype}.num_stages",
        "row.num_warps",
        "row.persistent_limit",
    )
    choices = {key: AUTO for key in keys if bears_on(key, patterns)}
    choices |= {"focus": FOCUS[request.analysis.roofline], "precision": request.goals.precision}
    return tuple(
        Decision(key=key, value=value, default=value, because="default")
        for key, value in sorted(choices.items())
    )


REASON = "go on from the best file that is not worn out, or begin anew"


@dataclass
class TurnPlanner:
    """All ideas first; then one turn a plan, whose file the coder chooses."""

    ideas: Planner

    def plan(self, request: PlanRequest) -> Plan:
        """What is left of the ideas, else one hypothesis: `turn 4`."""
        made = self.ideas.plan(request)
        if any(item.strategy not in request.exhausted for item in made.hypotheses):
            return made
        turn = Hypothesis(strategy=f"turn {len(request.begun) + 1}", reason=REASON)
        return made.evolve(hypotheses=(predict(turn, request.analysis),))


STRATEGY_MOST = 80
REASON_MOST = 600


class Idea(Frozen):
    """One thing to try. A time in microseconds or a speedup over the fastest time known."""

    strategy: str = Field(description="a few words that name the approach", min_length=1)
    reason: str = Field(description="why it should be faster, in one or two sentences")
    predicted_us: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    predicted_speedup: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Ideas(Frozen):
    """A model's plan, best first; past three nothing is read."""

    hypotheses: tuple[Idea, ...] = Field(min_length=1)


@dataclass
class ModelPlanner:
    """Plans by asking; the rules' plan stands in where the model gives nothing usable.

    `free`: the coder can follow any strategy in words. Else only those that the rules offer count.
    """

    model: Model
    rules: Planner
    sampling: Sampling
    free: bool = True
    tell: OnText = ignore
    """Hears in one line why the rules planned in the model's place."""

    def plan(self, request: PlanRequest) -> Plan:
        """At most three hypotheses that were not tried yet; decisions are the rules'."""
        made, history = self.rules.plan(request), request.history
        text = render(
            "planner",
            problem=request.problem.problem,
            analysis=request.analysis,
            target=request.target,
            goals=request.goals,
            retrieved=request.retrieved,
            history=tried(history),
            calibration=[item for item in calibration(history) if item.predicted_by],
            offered=made.hypotheses,
            free=self.free,
            most=MOST,
        )
        ideas = self._ask(text, max((item.candidate.round for item in history), default=0))
        taken = {item.candidate.strategy for item in history}
        fresh = self._hypotheses(ideas, made, fastest_us(history), taken)
        if ideas and not fresh:
            self.tell(f"{self.model.name} named nothing new to try; the rules plan")
        return made.evolve(hypotheses=fresh) if fresh else made

    def _ask(self, text: str, round_number: int) -> tuple[Idea, ...]:
        question = ModelRequest(
            agent="planner",
            round=round_number,
            messages=(Message(role="user", text=text),),
            sampling=self.sampling,
        )
        found = ask_or_tell(self.model, question, Ideas, self.tell, "plan", "the rules plan")
        return found.hypotheses if found else ()

    def _hypotheses(
        self, ideas: Sequence[Idea], made: Plan, fastest: float | None, taken: set[str]
    ) -> tuple[Hypothesis, ...]:
        offered = {item.strategy: item for item in made.hypotheses}
        fresh: dict[str, Hypothesis] = {}
        for idea in ideas:
            name = inline(idea.strategy, STRATEGY_MOST)
            if not name or name in taken or (not self.free and name not in offered):
                continue
            base = offered.get(name) or Hypothesis(strategy=name, reason="")
            told = base.evolve(
                reason=inline(idea.reason, REASON_MOST),
                predicted_us=expected_us(idea, fastest, made.analysis),
                predicted_by=self.model.name,
            )
            fresh.setdefault(name, told)
        return tuple(fresh.values())[:MOST]


def expected_us(idea: Idea, fastest: float | None, analysis: Analysis) -> float | None:
    """The time that `idea` promises, None where it promises none. Nothing is expected to beat the
    roofline."""
    promised = idea.predicted_us
    if promised is None and idea.predicted_speedup is not None and fastest is not None:
        promised = fastest / idea.predicted_speedup
    return None if promised is None else max(promised, analysis.bound_us)


def fastest_us(history: Sequence[Attempt]) -> float | None:
    """The fastest baseline that was measured beside a candidate; None where none was."""
    found: list[float] = []
    for item in history:
        for measured in item.profile.measurements[:1] if item.profile else ():
            found.append(measured.eager.median_us)
            found += [measured.compiled.median_us] if measured.compiled else []
    return min(found, default=None)
