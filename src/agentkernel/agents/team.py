"""Team of the compiler and several models that improve its candidates in turns.

A turn is a hypothesis whose strategy names the member and the candidate that it works on, so
that a resumed run reads from the strategies whose turn it was and which turns are over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentkernel.agents.history import best_so_far, fastest, known_time_us
from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.planner import MODEL_IDEAS, MOST, RulesPlanner, predict
from agentkernel.agents.prompts import inline
from agentkernel.agents.protocols import Attempt, Coder, DraftRequest, Planner, PlanRequest
from agentkernel.agents.reviewer import NoReview, Review, Reviews
from agentkernel.agents.segment_coder import SegmentCoder, root_of
from agentkernel.domain.candidate import Draft, NoTemplate
from agentkernel.domain.errors import EnvironmentFailure, NotRecorded, one_line
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, RooflineClass
from agentkernel.tools.problem.loading import LoadedProblem

STRATEGY = re.compile(
    r"(?:(?:improve|segment (?P<segment>\d+) of) (?P<parent>[0-9a-f]{10})|(?P<idea>.+?))"
    r" with (?P<member>.+), turn (?P<number>\d+)"
)


class Turn(NamedTuple):
    """A member's turn: to improve the candidate `parent` (its id), or to write one segment of it,
    else to follow `idea` from the module alone."""

    number: int
    member: str
    parent: str | None = None
    idea: str = ""
    segment: int = 0
    """Counted from 1, the most expensive first; 0: none."""

    @property
    def strategy(self) -> str:
        """The name of its hypothesis; no two turns of a run have the same."""
        task = f"segment {self.segment} of" if self.segment else "improve"
        task = f"{task} {self.parent}" if self.parent else self.idea
        return f"{task} with {self.member}, turn {self.number}"


def read_turn(strategy: str) -> Turn | None:
    """The turn that `strategy` names; None for one of the compiler's."""
    found = STRATEGY.fullmatch(strategy)
    if found is None:
        return None
    segment = int(found["segment"] or 0)
    return Turn(
        int(found["number"]), found["member"], found["parent"], found["idea"] or "", segment
    )


def read_turns(strategies: Iterable[str]) -> tuple[Turn, ...]:
    """All turns among them."""
    return tuple(turn for turn in map(read_turn, strategies) if turn is not None)


@dataclass
class TeamCoder:
    """Gives each hypothesis to the one whose turn it is. A member that fails costs its turn."""

    compiler: Coder
    members: Sequence[ModelCoder]
    """Each under a name of its own."""
    by_class: Mapping[RooflineClass, Sequence[str]] = field(default_factory=dict)
    """Members' names, for the classes that do not get all of `members`."""
    extra: Sequence[ModelCoder] = ()
    """Those that only `by_class` names."""
    reviews: Reviews | None = None
    """What the members are shown of the candidate that they improve."""
    segments: SegmentCoder | None = None
    """Who asks the members for single segments; None: nobody does."""
    name: str = "team"
    _away: set[str] = field(default_factory=set)
    """Members that could not be reached the last time."""

    def members_for(self, roofline: RooflineClass) -> tuple[ModelCoder, ...]:
        """Who gets the turns on a problem of this class, in order; nobody: the compiler alone."""
        named = self.by_class.get(roofline)
        if named is None:
            return tuple(self.members)
        pool = (*self.members, *self.extra)
        return tuple(item for item in pool if item.name in named)

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """The compiler's draft, or that of the member whose turn the hypothesis is.

        Raises ModelUnavailable where nothing is verified and no member can be reached, or a
        replay lacks an answer.
        """
        turn = read_turn(request.hypothesis.strategy)
        if turn is None:
            return self.compiler.draft(problem, request)
        pool = (*self.members, *self.extra)
        member = next((item for item in pool if item.name == turn.member), None)
        if member is None:
            reason = f"{turn.member} is not in the team"
            return Draft(candidate=None, none=NoTemplate(reason=reason))
        made = self._drafted(member, problem, request, turn)
        if made.candidate is None:
            return made
        # A spare sample bears the name of the turn in which it came: this one is over too.
        named = made.candidate.evolve(strategy=turn.strategy)
        return made.evolve(candidate=named)

    def _drafted(
        self, member: ModelCoder, problem: LoadedProblem, request: DraftRequest, turn: Turn
    ) -> Draft:
        asked = _asked(turn, request)
        try:
            made = None
            if turn.segment and self.segments is not None and asked.parent is not None:
                made = self.segments.draft(problem, request, member, asked.parent, turn.segment)
            if made is None:
                made = member.draft(problem, asked)
        except NotRecorded:
            raise
        except EnvironmentFailure as error:
            self._away.add(member.name)
            others = self.members_for(request.plan.analysis.roofline)
            unverified = best_so_far(request.history) is None
            if unverified and all(item.name in self._away for item in others):
                raise
            made = Draft(candidate=None, none=NoTemplate(reason=one_line(error)))
        else:
            self._away.discard(member.name)
        if made.none is None:
            return made
        lost = NoTemplate(reason=f"{member.name} loses its turn: {made.none.reason}")
        return made.evolve(none=lost)


def _asked(turn: Turn, request: DraftRequest) -> DraftRequest:
    """What the member is to see: the candidate of its turn, or the module alone."""
    fitting = (item for item in request.history if item.candidate.id == turn.parent)
    parent = next(fitting, None)
    return request.evolve(parent=parent, free=parent is None)


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

    def plan(self, request: PlanRequest) -> Plan:
        """Strategies of the compiler, or one turn of a member."""
        members = self.team.members_for(request.analysis.roofline)
        left = self._left(request.begun, bool(fastest(request.history, 1)), len(members))
        if left:
            made = self.compiler.plan(request)
            tried = request.exhausted
            fresh = tuple(item for item in made.hypotheses if item.strategy not in tried)
            fresh = fresh[: min(left, MOST)]
            if fresh or not members:
                fallback = made.fallback[: len(fresh)]
                return made.evolve(hypotheses=fresh, fallback=fallback)
        base = (self.ideas or NO_IDEAS).plan(replace(request, exhausted=()))
        idea = next((item for item in base.hypotheses if item.predicted_by), None)
        turn = self._turn(members, request)
        return base.evolve(hypotheses=(self._hypothesis(turn, request, idea),))

    def _left(self, begun: Collection[str], verified: bool, members: int) -> int:
        """How many strategies the compiler may try now. Once one is verified, or a member has had
        a turn, the rounds are the members'."""
        if not members:
            return self.rounds
        own = {name for name in begun if read_turn(name) is None}
        if own and (verified or read_turns(begun)):
            return 0
        return max(max(1, self.rounds - members) - len(own), 0)

    def _turn(self, members: Sequence[ModelCoder], request: PlanRequest) -> Turn:
        """Member after member; all of them on one candidate of the beam before the next one."""
        number = 1 + max((turn.number for turn in read_turns(request.begun)), default=0)
        member = members[(number - 1) % len(members)]
        cycle = (number - 1) // len(members)
        root = root_of(request.history)
        if root is not None and self.team.segments is not None:
            own = [turn for turn in read_turns(request.begun) if turn.parent == root.candidate.id]
            asked = sum(turn.segment > 0 for turn in own)
            if asked < self.team.segments.count(root):
                return Turn(number, member.name, root.candidate.id, segment=asked + 1)
        best = fastest(request.history, self.beam)
        if best and member.improves and not self.from_scratch:
            parent = best[cycle % len(best)].candidate.id
            return Turn(number, member.name, parent=parent)
        return Turn(number, member.name, idea=MODEL_IDEAS[cycle % len(MODEL_IDEAS)].strategy)

    def _hypothesis(self, turn: Turn, request: PlanRequest, idea: Hypothesis | None) -> Hypothesis:
        """The turn with what is expected of it: by the reviewer, else by the planner that is a
        model, else by the rules."""
        analysis = request.analysis
        parent = next((item for item in request.history if item.candidate.id == turn.parent), None)
        made = Hypothesis(strategy=turn.strategy, reason=_reason(turn, parent))
        if parent is not None and self.reviews is not None and not turn.segment:
            found = self.reviews.of(parent, analysis, request.target)
            made = _reviewed(made, parent, found, analysis)
        if idea is not None:
            made = made.evolve(reason=f"{made.reason}; {idea.strategy}: {idea.reason}")
            if idea.predicted_us is not None and not made.predicted_by:
                made = made.evolve(predicted_us=idea.predicted_us, predicted_by=idea.predicted_by)
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
        return made.evolve(reason=f"{made.reason}; no review: {found.reason}")
    advice = "; ".join(found.optimizations) or found.analysis
    reason = f"{made.reason}; {found.by}: {inline(advice, REASON_MOST)}"
    time_us = known_time_us(parent)
    if found.estimated_speedup is None or time_us is None:
        return made.evolve(reason=reason)
    promised = max(time_us / found.estimated_speedup, analysis.bound_us)
    return made.evolve(reason=reason, predicted_us=promised, predicted_by=found.by)
