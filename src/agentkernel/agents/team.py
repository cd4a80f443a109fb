"""Who of a team drafts: the compiler, or which of the models that go on from what it found?

A turn is a hypothesis whose strategy says who works on what: a run that goes on after a kill reads
there whose turn it was, and which turns are over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.agents.history import best_so_far
from agentkernel.agents.model import ModelCoder
from agentkernel.agents.protocols import Coder, DraftRequest
from agentkernel.agents.reviewer import Reviews
from agentkernel.domain.candidate import Draft, NoTemplate
from agentkernel.domain.errors import EnvironmentFailure, NotRecorded, one_line
from agentkernel.domain.plan import RooflineClass
from agentkernel.tools.problem.problems import LoadedProblem

STRATEGY = re.compile(
    r"(?:improve (?P<parent>[0-9a-f]{10})|(?P<idea>.+?)) with (?P<member>.+), turn (?P<number>\d+)"
)


class Turn(NamedTuple):
    """A member's turn: to improve the candidate `parent` (its id), else to follow `idea` from the
    module alone."""

    number: int
    member: str
    parent: str | None = None
    idea: str = ""

    @property
    def strategy(self) -> str:
        """The name of its hypothesis; no two turns of a run have the same."""
        task = f"improve {self.parent}" if self.parent else self.idea
        return f"{task} with {self.member}, turn {self.number}"


def read_turn(strategy: str) -> Turn | None:
    """The turn that `strategy` names; None for one of the compiler's."""
    found = STRATEGY.fullmatch(strategy)
    if found is None:
        return None
    return Turn(int(found["number"]), found["member"], found["parent"], found["idea"] or "")


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
        made = self._drafted(member, problem, _asked(turn, request))
        if made.candidate is None:
            return made
        # A spare sample bears the name of the turn in which it came: this one is over too.
        named = made.candidate.model_copy(update={"strategy": turn.strategy})
        return made.model_copy(update={"candidate": named})

    def _drafted(self, member: ModelCoder, problem: LoadedProblem, request: DraftRequest) -> Draft:
        try:
            made = member.draft(problem, request)
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
        return made.model_copy(update={"none": lost})


def _asked(turn: Turn, request: DraftRequest) -> DraftRequest:
    """What the member is to see: the candidate of its turn, or the module alone."""
    fitting = (item for item in request.history if item.candidate.id == turn.parent)
    parent = next(fitting, None)
    return request.model_copy(update={"parent": parent, "free": parent is None})


__all__ = ["TeamCoder", "Turn", "read_turn", "read_turns"]
