"""Dependencies of a run: agents, tools, models, clock, and who approves.

Built once at the edge and passed to the nodes as protocols and callables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agentkernel.agents.models.costs import Account, totals
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.protocols import (
    Attempt,
    Coder,
    Debugger,
    DraftRequest,
    Planner,
    Retriever,
)
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import ModuleGraph
from agentkernel.domain.knowledge import Entry, Structure
from agentkernel.domain.plan import Analysis, Plan, Retrieved
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Verdict
from agentkernel.runtime import gpu_lock
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.run_store import RunStore
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.approval import Approve
from agentkernel.workflows.events import OnEvent
from agentkernel.workflows.outcome import Baselines


class RunStart(Frozen):
    """What a run begins with beside its problem and settings; see OptimizeRequest."""

    history: tuple[Attempt, ...] = ()
    focus: str | None = None


@dataclass(frozen=True)
class ExperienceStore:
    """Where a run leaves what it learned."""

    family: str
    """The architecture family of the target."""
    structure: Callable[[], Structure]
    """What the problem computes."""
    keep: Callable[[Entry], str]
    """Takes an experience in: the id of the one that stands now. Raises OutputError."""


@dataclass(frozen=True)
class Tools:
    """The deterministic tools of one run, bound to its problem, target and settings."""

    analyse: Callable[[], Analysis]
    judge: Callable[[Candidate], Verdict]
    profile: Callable[[Candidate], Profile | ProfileFailed]
    baselines: Callable[[], Baselines | ProfileFailed | None]
    """Times of eager and torch.compile, None where nothing can be measured."""
    quick_baseline_us: Callable[[], float | None]
    """The faster of eager and torch.compile, quickly: for setting candidates aside alone."""
    baselines_ready: Callable[[], bool]
    """Whether a profile would begin at once, since no baseline is still being compiled."""
    apply_hints: Callable[[Plan, tuple[Retrieved, ...]], Plan]
    judge_key: Callable[[Candidate], str]
    profile_key: Callable[[Candidate], str]
    draft_key: Callable[[DraftRequest], str]
    graph: Callable[[], ModuleGraph | None] = lambda: None
    """What the problem's module computes, in the form that another module is compared with."""
    memory: ExperienceStore | None = None
    """None: nothing is learned."""
    warnings: tuple[str, ...] = ()
    """What is amiss on this machine, a line each."""


@dataclass(frozen=True)
class Agents:
    """The agents of one run."""

    planner: Planner
    retriever: Retriever
    coder: Coder
    debugger: Debugger


class Deps(NamedTuple):
    """Who works on a run, and with what."""

    crew: Agents
    tools: Tools


@dataclass(frozen=True)
class RunClock:
    """The clock of one process's part of a run: seconds spent before and since. It stands still
    while somebody is asked, and while other runs have the device."""

    spent_before_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    waited_before_s: float = field(default_factory=gpu_lock.waited_s)
    _waits: list[float] = field(default_factory=list)

    def seconds(self) -> float:
        """Wall seconds since this process took the run up."""
        others = gpu_lock.waited_s() - self.waited_before_s
        return time.monotonic() - self.began - sum(self._waits) - others

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this lasts, no time is spent."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waits.append(time.monotonic() - began)

    def spent(self) -> float:
        """Wall seconds of all sessions together."""
        return self.spent_before_s + self.seconds()


@dataclass(frozen=True)
class Context:
    """All that a node may use beside the state."""

    problem: LoadedProblem
    target: Target
    store: RunStore
    crew: Agents
    tools: Tools
    emit: OnEvent
    session: RunClock
    start: RunStart = field(default_factory=RunStart)
    """What earlier runs leave to this one."""
    approve: Approve | None = None
    """Who is asked where the settings want it."""
    measurable: bool = False
    """A GPU here can stand for the target."""

    def models(self) -> Account:
        """What the models of the run have taken so far, all sessions together."""
        return totals(self.store.records.exchanges()).total


class RunFactory(Protocol):
    """What builds the tools and agents of a run: the real one, or a test's."""

    def resolve(self, settings: Settings) -> ResolvedTarget:
        """The target in force. Raises UnknownTarget."""
        ...

    def judge_sha256(self) -> str:
        """Fingerprint of the judge's own files."""
        ...

    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> AbstractContextManager[Deps]:
        """Agents and tools for one problem, put away when the run is over. Models come from
        `desk`."""
        ...
