"""Whose turn is it in a team, on which candidate, and what is expected of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.agents.history import fastest, known_time_us
from agentkernel.agents.model import ModelCoder
from agentkernel.agents.planner import MODEL_IDEAS, MOST, RulesPlanner, predict
from agentkernel.agents.prompts import inline
from agentkernel.agents.protocols import Attempt, Goals, Planner
from agentkernel.agents.reviewer import NoReview, Review, Reviews
from agentkernel.agents.team import TeamCoder, Turn, read_turn, read_turns
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, Retrieved
from agentkernel.domain.target import Target
from agentkernel.tools.problem.problems import LoadedProblem

REASON_MOST = 300
NO_IDEAS = RulesPlanner(lambda problem, target: ())


@dataclass
class TeamPlanner:
    """The compiler's best strategies first, as many as leave each member a turn; then one turn a
    plan, so that each goes on from the best of that moment."""

    compiler: Planner
    """Ranks all that the compiler could try."""
    team: TeamCoder
    rounds: int
    from_scratch: bool = False
    beam: int = 1
    reviews: Reviews | None = None
    ideas: Planner | None = None
    """A model that says what the members are to try; None: the reviewer, or fixed ideas."""

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
        """Strategies of the compiler, or one turn of a member."""
        members = self.team.members_for(analysis.roofline)
        begun = [*(item.candidate.strategy for item in history), *exhausted]
        left = self._left(begun, bool(fastest(history, 1)), len(members))
        if left:
            made = self.compiler.plan(
                problem, analysis, target, goals, history, retrieved, exhausted
            )
            fresh = tuple(item for item in made.hypotheses if item.strategy not in exhausted)
            fresh = fresh[: min(left, MOST)]
            if fresh or not members:
                fallback = made.fallback[: len(fresh)]
                return made.model_copy(update={"hypotheses": fresh, "fallback": fallback})
        turn = self._turn(members, begun, history)
        base = (self.ideas or NO_IDEAS).plan(problem, analysis, target, goals, history, retrieved)
        idea = next((item for item in base.hypotheses if item.predicted_by), None)
        hypothesis = self._hypothesis(turn, history, analysis, target, idea)
        return base.model_copy(update={"hypotheses": (hypothesis,)})

    def _left(self, begun: Sequence[str], verified: bool, members: int) -> int:
        """How many strategies the compiler may try now. Once one is verified, or a member has had
        a turn, the rounds are the members'."""
        if not members:
            return self.rounds
        own = {name for name in begun if read_turn(name) is None}
        if own and (verified or read_turns(begun)):
            return 0
        return max(max(1, self.rounds - members) - len(own), 0)

    def _turn(
        self, members: Sequence[ModelCoder], begun: Sequence[str], history: Sequence[Attempt]
    ) -> Turn:
        """Member after member; all of them on one candidate of the beam before the next one."""
        number = 1 + max((turn.number for turn in read_turns(begun)), default=0)
        member = members[(number - 1) % len(members)]
        cycle = (number - 1) // len(members)
        best = fastest(history, self.beam)
        if best and member.improves and not self.from_scratch:
            parent = best[cycle % len(best)].candidate.id
            return Turn(number, member.name, parent=parent)
        return Turn(number, member.name, idea=MODEL_IDEAS[cycle % len(MODEL_IDEAS)].strategy)

    def _hypothesis(
        self,
        turn: Turn,
        history: Sequence[Attempt],
        analysis: Analysis,
        target: Target,
        idea: Hypothesis | None,
    ) -> Hypothesis:
        """The turn with what is expected of it: by the reviewer, else by the planner that is a
        model, else by the rules."""
        parent = next((item for item in history if item.candidate.id == turn.parent), None)
        made = Hypothesis(strategy=turn.strategy, reason=_reason(turn, parent))
        if parent is not None and self.reviews is not None:
            made = _reviewed(made, parent, self.reviews.of(parent, analysis, target), analysis)
        if idea is not None:
            told = {"reason": f"{made.reason}; {idea.strategy}: {idea.reason}"}
            if idea.predicted_us is not None and not made.predicted_by:
                told |= idea.model_dump(include={"predicted_us", "predicted_by"})
            made = made.model_copy(update=told)
        return predict(made, analysis)


def _reason(turn: Turn, parent: Attempt | None) -> str:
    if parent is None:
        return next(item.reason for item in MODEL_IDEAS if item.strategy == turn.idea)
    time_us = known_time_us(parent)
    measured = parent.profile is not None and parent.profile.measured
    known = "" if time_us is None else f", {time_us:.1f} us{'' if measured else ' estimated'}"
    return f"go on from {parent.candidate.strategy!r} by {parent.candidate.coder}{known}"


def _reviewed(
    made: Hypothesis, parent: Attempt, found: Review | NoReview, analysis: Analysis
) -> Hypothesis:
    """With the review's words and the time that it promises; nothing is expected to beat the
    roofline."""
    if isinstance(found, NoReview):
        return made.model_copy(update={"reason": f"{made.reason}; no review: {found.reason}"})
    advice = "; ".join(found.optimizations) or found.analysis
    reason = f"{made.reason}; {found.by}: {inline(advice, REASON_MOST)}"
    time_us = known_time_us(parent)
    if found.estimated_speedup is None or time_us is None:
        return made.model_copy(update={"reason": reason})
    promised = max(time_us / found.estimated_speedup, analysis.bound_us)
    told = {"reason": reason, "predicted_us": promised, "predicted_by": found.by}
    return made.model_copy(update=told)


__all__ = ["TeamPlanner"]
