"""What does a session remember? A tree of candidates, the steps that made them, where it stands."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import Verdict

Origin = Literal["drafted", "edited", "pasted"]
"""Who wrote a candidate: a coder, the user in an editor, or the user into the session."""
StepState = Literal["running", "done", "stopped", "failed"]
"""`running` is also what a kill leaves: such a step goes on when the session is opened again."""
SettingValue = str | int | float | bool | None
Changes = dict[str, SettingValue]
"""Dotted keys of `Settings` -> values, over what the session began with."""


class Node(Frozen):
    """One candidate; `number` 3 is shown as c3. Numbers are given once and never reused."""

    number: int = Field(ge=1)
    parent: int | None = None
    """The candidate that it was made from; None: the user's module."""
    step: int
    origin: Origin = "drafted"
    candidate: Candidate
    verdict: Verdict | None = None
    profile: Profile | None = None
    unprofiled: ProfileFailed | None = None
    aside: str = ""
    """Why it was not judged: the search had seen it too slow."""


class Step(Frozen):
    """One request that a run answered, or that a hand-written candidate came from."""

    number: int = Field(ge=1)
    text: str
    """The user's own words."""
    base: int | None = None
    """The candidate that it began with; None: the module."""
    changes: Changes = Field(default_factory=dict)
    """All that differs from the session's first settings."""
    run: str | None = None
    state: StepState = "running"
    outcome: str = ""
    """What came of it, in one line."""
    problem: str = ""
    """Of which problem: as in `Place`."""
    origin: Origin = "drafted"
    """Who writes its candidates."""
    seconds: float = 0.0
    """Wall seconds of its run, all processes together."""


class Place(Frozen):
    """Where a session stands: a candidate (None: the module), what was changed, and the branch."""

    candidate: int | None = None
    changes: Changes = Field(default_factory=dict)
    branch: int = 1
    problem: str = ""
    """Which sizes and dtypes: "" for the module as it came, else the key of a derived problem."""


class Branch(Frozen):
    """A line of work: where it began, and where it stands now."""

    number: int = Field(ge=1)
    began: Place
    tip: Place


class Tree(Frozen):
    """All of it. Nothing is ever taken away: undo and redo walk along `places`."""

    nodes: tuple[Node, ...] = ()
    steps: tuple[Step, ...] = ()
    branches: tuple[Branch, ...] = (Branch(number=1, began=Place(), tip=Place()),)
    places: tuple[Place, ...] = (Place(),)
    """Where the session stood, in order; those behind `at` can be redone."""
    at: int = 0
    kept: int | None = None
    """The candidate that the user keeps."""
    rejected: tuple[int, ...] = ()

    @property
    def place(self) -> Place:
        """Where the session stands now."""
        return self.places[self.at]

    def node(self, number: int) -> Node | None:
        """Candidate `number`, None where there is none."""
        return next((item for item in self.nodes if item.number == number), None)

    def step(self, number: int) -> Step | None:
        """Step `number`, None where there is none."""
        return next((item for item in self.steps if item.number == number), None)
