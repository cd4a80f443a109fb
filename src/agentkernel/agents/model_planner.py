"""What would a model try on this problem, and how fast does it expect that to be?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from agentkernel.agents.calibration import calibration
from agentkernel.agents.history import tried
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.planner import MOST
from agentkernel.agents.prompts import inline, render
from agentkernel.agents.protocols import Attempt, Goals, Planner
from agentkernel.agents.structured import NotStructured, ask_structured
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, Retrieved
from agentkernel.domain.target import Target
from agentkernel.tools.problem.problems import LoadedProblem

STRATEGY_MOST = 80
REASON_MOST = 600

Tell = Callable[[str], None]
"""Hears in one line why the rules answered in the model's place."""


class Idea(Frozen):
    """One thing to try. A time in microseconds or a speedup over the fastest time known."""

    strategy: str = Field(description="a few words that name the approach", min_length=1)
    reason: str = Field(description="why it should be faster, in one or two sentences")
    predicted_us: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    predicted_speedup: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Ideas(Frozen):
    """A model's plan, best first; past three nothing is read."""

    hypotheses: tuple[Idea, ...] = Field(min_length=1)


def ignore_line(line: str) -> None:
    """A listener that does nothing."""


@dataclass
class ModelPlanner:
    """Plans by asking; the rules' plan stands in where the model gives nothing usable.

    `free`: the coder can follow any strategy in words. Else only those that the rules offer count.
    """

    model: Model
    rules: Planner
    sampling: Sampling
    free: bool = True
    tell: Tell = field(default=ignore_line)

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
        """At most three hypotheses that were not tried yet; decisions are the rules'."""
        made = self.rules.plan(problem, analysis, target, goals, history, retrieved, exhausted)
        text = render(
            "planner",
            problem=problem.problem,
            analysis=analysis,
            target=target,
            goals=goals,
            retrieved=retrieved,
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
        return made.model_copy(update={"hypotheses": fresh}) if fresh else made

    def _ask(self, text: str, round_number: int) -> tuple[Idea, ...]:
        question = ModelRequest(
            agent="planner",
            round=round_number,
            messages=(Message(role="user", text=text),),
            sampling=self.sampling,
        )
        try:
            found = ask_structured(self.model, question, Ideas)
        except NotRecorded:
            raise
        except ModelUnavailable as error:
            self.tell(f"the rules plan: {one_line(error)}")
            return ()
        if isinstance(found, NotStructured):
            self.tell(f"{self.model.name} gave no plan that can be read; the rules plan")
            return ()
        return found.hypotheses

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
            told = {
                "reason": inline(idea.reason, REASON_MOST),
                "predicted_us": expected_us(idea, fastest, made.analysis),
                "predicted_by": self.model.name,
            }
            fresh.setdefault(name, base.model_copy(update=told))
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
