"""State of the loop: frozen values and the reducers that join updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from agentkernel.agents.protocols import Attempt, Diagnosis, Goals
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.plan import Hypothesis, Plan, Retrieved
from agentkernel.domain.profile import Profile
from agentkernel.domain.settings import Approval, Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.workflows.outcome import Result

DECLINED: Literal["declined"] = "declined"
"""Why a run stopped or a candidate was left out, where somebody said no."""
StopReason = Literal[
    "met",
    "headroom",
    "rounds",
    "time",
    "tokens",
    "money",
    "stagnation",
    "hypotheses",
    "estimate",
    "declined",
]


@dataclass(frozen=True)
class OptimizeRequest:
    """One job. `out` is a folder, or a path that ends in `.py`, for copies of the results.

    `flags` is what the user typed, kept in the manifest. `history` are attempts on the same problem
    that earlier runs made; `focus` is the one strategy to try, where the planner is not to choose.
    """

    problem: LoadedProblem
    settings: Settings
    out: Path | None = None
    flags: tuple[str, ...] = ()
    history: tuple[Attempt, ...] = ()
    focus: str | None = None


class Limits(Frozen):
    """When the loop stops: hypotheses, repairs of each, wall seconds, roofline headroom, what the
    models may take, drafts of theirs in a row that are not the best, and how often the planner is
    asked again once its hypotheses are used up (more than once where it plans turn by turn)."""

    rounds: int = 3
    repairs: int = 2
    time_s: float | None = None
    headroom: float = 0.03
    tokens: int | None = None
    usd: float | None = None
    patience: int | None = None
    replans: int = 1


def append_attempts(old: tuple[Attempt, ...], new: Iterable[Attempt] | None) -> tuple[Attempt, ...]:
    """Join histories: a later entry for the same candidate takes the earlier one's place."""
    joined = {item.candidate.sha256: item for item in old}
    for item in new or ():
        joined[item.candidate.sha256] = item
    return tuple(joined.values())


class LoopInput(Frozen):
    """What a run starts with."""

    goals: Goals = Goals()
    limits: Limits = Limits()
    approve: Approval = "never"
    focus: str | None = None
    """The one strategy that is tried, with its repairs; None: the planner's."""
    history: Annotated[tuple[Attempt, ...], append_attempts] = ()
    """Attempts in order; first those of earlier runs, whose candidates belong to round 0."""


class LoopState(LoopInput):
    """The loop's memory: `hypothesis` is being tried, those in `queue` are not tried yet."""

    round: int = 0
    """Hypotheses begun so far; the first draft belongs to round 1."""
    repairs: int = 0
    plan: Plan | None = None
    replans: int = 0
    queue: tuple[Hypothesis, ...] = ()
    hypothesis: Hypothesis | None = None
    retraced: int = 0
    """Rounds that a start from experience took in vain: the others lose none by it."""
    retrieved: tuple[Retrieved, ...] = ()
    candidate: Candidate | None = None
    nothing: str = ""
    """Why the coder had nothing to offer, the last time it had nothing."""
    barren: tuple[str, ...] = ()
    """Strategies for which it had nothing: a new plan does not name them again."""
    shown: tuple[str, ...] = ()
    """What the models were asked about so far, in order."""
    verdict: Verdict | None = None
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    stop: StopReason | None = None
    spent_s: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    result: Result | None = None


class Update(TypedDict, total=False):
    """A node's answer: the fields that it changes."""

    round: int
    repairs: int
    plan: Plan | None
    replans: int
    queue: tuple[Hypothesis, ...]
    hypothesis: Hypothesis | None
    retraced: int
    retrieved: tuple[Retrieved, ...]
    candidate: Candidate | None
    nothing: str
    barren: tuple[str, ...]
    shown: tuple[str, ...]
    verdict: Verdict | None
    profile: Profile | None
    diagnosis: Diagnosis | None
    history: tuple[Attempt, ...]
    stop: StopReason | None
    spent_s: float
    tokens: int
    usd: float
    result: Result | None
