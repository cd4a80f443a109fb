"""Protocols of the agents and the values that pass between them and the loop.

A planner turns roofline facts and history into hypotheses, a retriever finds entries of the
knowledge base, a coder drafts one candidate a call, a debugger reads a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate, Draft, TrialResult
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, Retrieved
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Policy, Precision, Verdict
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.tools.search.space import Forms, Space


class Goals(Frozen):
    """What the user asked for."""

    speedup: float = 1.2
    baseline: Literal["best", "eager", "compile"] = "best"
    objective: Literal["latency", "memory", "energy"] = "latency"
    max_memory_bytes: int | None = None
    precision: Precision = "strict"
    policy: Policy = "mixed"


class Attempt(Frozen):
    """One candidate with what became of it."""

    candidate: Candidate
    verdict: Verdict | None = None
    profile: Profile | None = None
    unprofiled: ProfileFailed | None = None
    """Why there is no profile, where one was tried."""
    aside: str = ""
    """Why it was not judged: the search had seen it too slow."""
    predicted_us: float | None = None
    """The time that its hypothesis promised."""
    predicted_by: str = ""
    """Who promised it: a model's name, "" for the rules."""
    judge_key: str = ""
    """All that the verdict depends on, as a hash; "" where nobody kept it."""
    profile_key: str = ""
    """The same of the profile."""


Action = Literal["repair", "next_hypothesis", "give_up"]
"""What comes after a refusal, from the mildest to the strictest."""


class Diagnosis(Frozen):
    """The debugger's answer: what is wrong, where, and what to do next."""

    failure_class: str
    evidence: str
    action: Action
    advice: str
    line: int | None = None
    """The candidate's line at fault, where known."""
    edit: str = ""
    """The smallest edit that should fix it, as SEARCH/REPLACE blocks or in words."""
    by: str = ""
    """The model that diagnosed; "" for the rules."""
    fixes: tuple[str, ...] = ()
    """Entries of the knowledge base that bear on the error, by id, the surest first."""


class DraftRequest(Frozen):
    """All that a coder may use."""

    target: Target
    goals: Goals
    plan: Plan
    hypothesis: Hypothesis
    retrieved: tuple[Retrieved, ...]
    history: tuple[Attempt, ...]
    diagnosis: Diagnosis | None
    round: int
    parent: Attempt | None = None
    """The right candidate to go on from; None: the fastest so far."""
    free: bool = False
    """Start from the module alone: no earlier file is shown."""
    shown: tuple[str, ...] = ()
    """What each question of this run was about, in order: a `Draft.shown` each."""


@dataclass(frozen=True)
class PlanRequest:
    """All that a planner may use."""

    problem: LoadedProblem
    analysis: Analysis
    target: Target
    goals: Goals
    history: tuple[Attempt, ...] = ()
    retrieved: tuple[Retrieved, ...] = ()
    exhausted: tuple[str, ...] = ()
    """Strategies for which the coder had nothing."""

    @property
    def begun(self) -> frozenset[str]:
        """Strategies that were drafted, or for which the coder had nothing."""
        return frozenset((*(item.candidate.strategy for item in self.history), *self.exhausted))


class Planner(Protocol):
    """Turns roofline facts and history into at most three hypotheses."""

    def plan(self, request: PlanRequest) -> Plan: ...


class Retriever(Protocol):
    """Finds hardware notes and kernel examples that bear on a problem."""

    def retrieve(
        self, problem: LoadedProblem, analysis: Analysis, target: Target
    ) -> tuple[Retrieved, ...]: ...


class Searcher(Protocol):
    """Ranks a family of sources of one problem: prunes by cross-compiling, measures where a GPU is.

    Every source runs in the sandbox. The result has one entry a source, in the order given, and
    behind them one for each of the `forms` of the fastest that were timed beside it. `tune` does
    the same for parts of a model, each on tensors of its own.
    """

    def rank(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        labels: Sequence[str],
        schedules: Sequence[dict[str, dict[str, int]]],
        target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]: ...

    @property
    def most_sampled(self) -> int:
        """Sources beyond the best guesses that one `tune` has the time to compile."""

    def tune(
        self, spaces: Sequence[Space], target: Target
    ) -> tuple[tuple[TrialResult, ...], ...]: ...


class Coder(Protocol):
    """Drafts one candidate a call."""

    name: str

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft: ...


class Debugger(Protocol):
    """Reads a verdict and says what to do next."""

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: Sequence[Attempt]
    ) -> Diagnosis: ...
