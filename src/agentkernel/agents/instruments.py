"""The judge, the profiler and the searcher of one problem, on this machine or on another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from agentkernel.agents.compiler_coder import rewritten_graph_of
from agentkernel.agents.protocols import Searcher
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import Verdict
from agentkernel.runtime import gpu_lock
from agentkernel.tools.judge.judge import judge, workers_taken
from agentkernel.tools.judge.settings import JudgeSettings, prefork_judge_workers
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler import ProfileSession, ProfileSettings
from agentkernel.tools.profiler.session import BaselineTimes, QuickTimes
from agentkernel.tools.sandbox.session import close_idle_workers, prefork_worker
from agentkernel.tools.search import MeasuringSearcher, StaticSearcher
from agentkernel.tools.targets import ResolvedTarget

ROOM_FOR_WORKERS = 40 << 30
"""Bytes of a device on which idle workers may wait: each holds about half a gigabyte of it."""
STATIC_SEARCH_S = 60.0
"""Long enough that the family is compiled whole: a cut one would depend on the machine's load."""


class InstrumentSettings(Frozen):
    """How the instruments are set. `judging` is for the processes that start ahead: each judgement
    brings settings of its own. `seed` is the search's."""

    judging: JudgeSettings
    profiling: ProfileSettings
    seed: int = 0


class Instruments(Protocol):
    """What judges, times and searches for one problem."""

    @property
    def searcher(self) -> Searcher: ...

    @property
    def measures(self) -> bool:
        """True where a GPU can stand for the target."""

    def begin(self) -> None:
        """Start what takes long to start; does not wait for it."""

    def ready(self) -> bool:
        """True where a profile would begin at once: no baseline compiles ahead of it."""

    def judge(self, candidate: Candidate, settings: JudgeSettings) -> Verdict: ...

    def profile(self, candidate: Candidate) -> Profile | ProfileFailed: ...

    def baselines(self) -> BaselineTimes | ProfileFailed:
        """Times of the baselines alone. Raises MissingDependency where nothing measures."""

    def quick_times(self) -> QuickTimes | None:
        """Times of few calls of the baselines; None where nothing can be measured."""


@dataclass(frozen=True)
class LocalInstruments:
    """The instruments of this machine. `captured` traces the module on first use."""

    session: ProfileSession
    captured: Callable[[], Captured]
    settings: InstrumentSettings

    @property
    def searcher(self) -> Searcher:
        """Measures schedules where the GPU can stand for the target, else compiles and
        estimates."""
        unsandboxed = self.settings.judging.allow_unsandboxed
        if not self.session.resolved.measurable:
            return StaticSearcher(STATIC_SEARCH_S, allow_unsandboxed=unsandboxed)
        return MeasuringSearcher(
            seed=self.settings.seed,
            allow_unsandboxed=unsandboxed,
            make_room=self.session.make_room,
        )

    @property
    def measures(self) -> bool:
        """As the session has it."""
        return self.session.measures

    def begin(self) -> None:
        """Let the processes that a run begins with do their imports meanwhile: one that compiles,
        and one that judges (or, on a GPU, races schedules)."""
        judging = self.settings.judging
        prefork_worker(device="cpu", interpret=False, allow_unsandboxed=judging.allow_unsandboxed)
        prefork_judge_workers(judging)
        self.session.begin()

    def ready(self) -> bool:
        """As the session has it."""
        return self.session.ready()

    def judge(self, candidate: Candidate, settings: JudgeSettings) -> Verdict:
        """The judge's finding."""
        self.session.make_room()
        if settings.device == "cuda":
            # One more is the profile's.
            wanted = 1 + workers_taken(candidate.source, settings)
            gpu = self.session.resolved.local
            roomy = gpu is not None and gpu.memory_bytes >= ROOM_FOR_WORKERS
            prefork_judge_workers(settings, count=wanted if roomy else 2)
        return judge(self.session.loaded, self.captured(), candidate.source, settings)

    def profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        """Measured where a GPU is, else estimated."""
        written = rewritten_graph_of(self.session.loaded, self.captured(), candidate)
        return self.session.profile(self.captured(), candidate.source, written)

    def baselines(self) -> BaselineTimes | ProfileFailed:
        """As the session has it."""
        return self.session.baselines()

    def quick_times(self) -> QuickTimes | None:
        """As the session has it."""
        return self.session.quick_times()


@contextmanager
def local_instruments(
    loaded: LoadedProblem,
    captured: Callable[[], Captured],
    resolved: ResolvedTarget,
    settings: InstrumentSettings,
) -> Iterator[LocalInstruments]:
    """The instruments of this machine, whose processes end with the block."""
    with (
        gpu_lock.private_lock() if resolved.measurable else nullcontext(),
        ProfileSession(loaded, resolved, settings.profiling) as session,
    ):
        try:
            yield LocalInstruments(session, captured, settings)
        finally:
            close_idle_workers()
