"""What does a model try once its ideas are used up, and there are rounds left?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.agents.planner import predict
from agentkernel.agents.protocols import Attempt, Goals, Planner
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, Retrieved
from agentkernel.domain.target import Target
from agentkernel.tools.problem.problems import LoadedProblem

REASON = "go on from the best file that is not worn out, or begin anew"


@dataclass
class TurnPlanner:
    """All ideas first; then one turn a plan, whose file the coder chooses."""

    ideas: Planner

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
        """What is left of the ideas, else one hypothesis: `turn 4`."""
        made = self.ideas.plan(problem, analysis, target, goals, history, retrieved, exhausted)
        if any(item.strategy not in exhausted for item in made.hypotheses):
            return made
        begun = {*(item.candidate.strategy for item in history), *exhausted}
        turn = Hypothesis(strategy=f"turn {len(begun) + 1}", reason=REASON)
        return made.model_copy(update={"hypotheses": (predict(turn, analysis),)})


__all__ = ["TurnPlanner"]
