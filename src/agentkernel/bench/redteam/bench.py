"""How is one candidate of the corpus judged in this process, and where does its time go?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from agentkernel.bench.redteam.corpus import CorpusEntry
from agentkernel.bench.redteam.finding import CorpusFinding, compare_with_expected, expected_gate
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import EnvironmentFailure, UserError
from agentkernel.domain.profile import ProfileFailed
from agentkernel.tools.judge.settings import JudgeSettings, fresh_seed
from agentkernel.tools.judge.workers import prefork_judge_workers
from agentkernel.tools.sandbox.session import close_idle_workers, settle_idle_workers

if TYPE_CHECKING:
    from types import TracebackType

    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.problems import LoadedProblem
    from agentkernel.tools.profiler import ProfileSession

T = TypeVar("T")


class CorpusSettings(Frozen):
    """How a corpus is judged. `time_limit_s` bounds each call of a candidate: some hang on purpose.
    `ahead`: the next worker starts while this one works; worth it where cores are idle."""

    device: Literal["cpu", "cuda"] = "cpu"
    seed: int | None = None
    """None: a fresh one for each candidate."""
    seeds: int = 5
    time_limit_s: float = 20.0
    budget_s: float = 25.0
    ahead: bool = False
    threads: int = 1
    memory_bytes: int = 12 << 30
    allow_unsandboxed: bool = False


class CorpusJudge:
    """Judges candidates one after the other; each problem is loaded and captured once."""

    def __init__(self, settings: CorpusSettings) -> None:
        self._settings = settings
        self._problems: dict[str, tuple[LoadedProblem, Captured]] = {}
        self._profiler: tuple[str, ProfileSession] | None = None

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Where candidates run; "cpu" is Triton's interpreter."""
        return self._settings.device

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what was started ahead of need."""
        close_idle_workers()
        if self._profiler is not None:
            self._profiler[1].close()
            self._profiler = None

    def judge(self, entry: CorpusEntry, *, profile: bool = False) -> CorpusFinding:
        """Judge `entry`; with `profile`, time it too if it is accepted.

        Raises EnvironmentFailure; a reference that does not run is a finding.
        """
        from agentkernel.tools.judge.judge import judge

        try:
            capture_s, (loaded, captured) = _timed(lambda: self._problem(entry.problem))
            start_s, _ = _timed(self._await_worker)
            verdict = judge(loaded, captured, entry.source, judge_settings(entry, self._settings))
        except EnvironmentFailure:
            raise
        except UserError as error:
            return undecided_finding(entry, str(error))
        failed, profile_s = None, 0.0
        if profile and verdict.accepted:
            profile_s, failed = _timed(lambda: self._profile(entry, loaded, captured))
        found = compare_with_expected(entry, verdict, failed)
        times = {"start_s": start_s, "capture_s": capture_s, "profile_s": profile_s}
        return found.model_copy(update={key: round(value, 3) for key, value in times.items()})

    def _problem(self, path: str) -> tuple[LoadedProblem, Captured]:
        from agentkernel.tools.problem.capture import capture
        from agentkernel.tools.problem.problems import load_problem

        if path not in self._problems:
            loaded = load_problem(path)
            self._problems[path] = (loaded, capture(loaded))
        return self._problems[path]

    def _await_worker(self) -> None:
        """Until a worker is ready, so that its start is not counted as judging."""
        self._expect(1)
        settle_idle_workers()
        if self._settings.ahead:
            self._expect(2)

    def _expect(self, count: int) -> None:
        worker = JudgeSettings(
            device=self._settings.device,
            memory_bytes=self._settings.memory_bytes,
            allow_unsandboxed=self._settings.allow_unsandboxed,
        )
        prefork_judge_workers(worker, count)

    def _profile(
        self, entry: CorpusEntry, loaded: LoadedProblem, captured: Captured
    ) -> ProfileFailed | None:
        from agentkernel.tools.profiler import ProfileSession, ProfileSettings
        from agentkernel.tools.targets import find_target

        if self._profiler is None or self._profiler[0] != entry.problem:
            if self._profiler is not None:
                self._profiler[1].close()
            limits = ProfileSettings(
                shape_sets=(0,),
                compare_compile=False,
                extras=False,
                allow_unsandboxed=self._settings.allow_unsandboxed,
            )
            self._profiler = (entry.problem, ProfileSession(loaded, find_target(None), limits))
        found = self._profiler[1].profile(captured, entry.source)
        return found if isinstance(found, ProfileFailed) else None


def judge_settings(entry: CorpusEntry, settings: CorpusSettings) -> JudgeSettings:
    """A hostile one is judged by what it does, an honest one by what it says too."""
    return JudgeSettings(
        policy=entry.policy,
        static=entry.static,
        device=settings.device,
        seed=fresh_seed() if settings.seed is None else settings.seed,
        seeds=settings.seeds,
        time_limit_s=settings.time_limit_s,
        budget_s=settings.budget_s,
        memory_bytes=settings.memory_bytes,
        allow_unsandboxed=settings.allow_unsandboxed,
    )


def undecided_finding(entry: CorpusEntry, reason: str) -> CorpusFinding:
    """A candidate about which nothing could be decided."""
    return CorpusFinding(
        name=entry.name,
        kind=entry.kind,
        problem=entry.problem_name,
        title=entry.title,
        expected=expected_gate(entry),
        gate=None,
        right=False,
        reason=reason,
    )


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.monotonic()
    value = work()
    return time.monotonic() - began, value
