"""Judging of a red-team corpus in a pool of processes, each with problems of its own."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from agentkernel.bench.redteam.corpus import (
    CorpusEntry,
    CorpusFinding,
    Journal,
    compare_with_expected,
    undecided_finding,
)
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import EnvironmentFailure, UserError, one_line
from agentkernel.domain.profile import ProfileFailed
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings, fresh_seed, prefork_judge_workers
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler import ProfileSession, ProfileSettings
from agentkernel.tools.sandbox.session import close_idle_workers, settle_idle_workers
from agentkernel.tools.targets import find_target

if TYPE_CHECKING:
    from types import TracebackType

    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem
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
        return found.evolve(
            start_s=round(start_s, 3),
            capture_s=round(capture_s, 3),
            profile_s=round(profile_s, 3),
        )

    def _problem(self, path: str) -> tuple[LoadedProblem, Captured]:
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


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.monotonic()
    value = work()
    return time.monotonic() - began, value


Say = Callable[[CorpusFinding], None]
SHARE_OF_CORES = {"cpu": 1.0, "cuda": 0.75}
"""Most of the time a candidate's kernels are compiled, on one core; the rest are for the twins and
what the driver does."""


@dataclass
class JudgeProcess:
    """One process, and the problems that it has captured."""

    executor: ProcessPoolExecutor
    problems: set[str] = field(default_factory=set)


TIME_LIMIT_S = {"cpu": 20.0, "cuda": 60.0}
"""On a GPU some kernels are compiled for half a minute."""


def default_jobs(device: Literal["cpu", "cuda"]) -> int:
    """So many that the cores are busy: starting workers and interpreting is what takes the time."""
    return max(1, int((os.cpu_count() or 1) * SHARE_OF_CORES[device]))


def corpus_settings(
    device: Literal["cpu", "cuda"], jobs: int, *, allow_unsandboxed: bool = False
) -> CorpusSettings:
    """Threads and spare workers for `jobs` processes on this machine's cores."""
    cores = os.cpu_count() or 1
    return CorpusSettings(
        device=device,
        time_limit_s=TIME_LIMIT_S[device],
        ahead=cores >= 2 * jobs,
        threads=max(1, min(4, cores // jobs)),
        allow_unsandboxed=allow_unsandboxed,
    )


def judge_corpus(
    entries: Sequence[CorpusEntry],
    settings: CorpusSettings,
    jobs: int,
    say: Say,
    journal: Journal | None = None,
) -> tuple[CorpusFinding, ...]:
    """Judge all of `entries` in `jobs` processes; `say` hears each finding as it comes. What
    `journal` knows is not judged again, and what is found goes there.

    What neighbours may have caused, and what only its time can give away, is judged once more
    after the others, alone. Raises EnvironmentFailure where this machine cannot isolate a
    candidate.
    """
    timing = settings.device == "cuda"
    found: dict[str, CorpusFinding] = {}
    again: list[CorpusEntry] = []
    together = jobs > 1

    def settle(entry: CorpusEntry, item: CorpusFinding, *, new: bool = True) -> None:
        found[_key(entry)] = item
        if new and journal is not None:
            journal.note(entry, item)
        say(item)

    for entry in entries:
        known = journal.known(entry) if journal is not None else None
        if known is not None:
            settle(entry, known, new=False)
    left = [entry for entry in entries if _key(entry) not in found]
    for entry, item in _spread(left, settings, jobs):
        doubtful = not item.right or (item.crowded and item.gate != item.expected)
        if (together and doubtful) or (timing and entry.gate == "timing" and item.accepted):
            again.append(entry)
        else:
            settle(entry, item)
    last = sorted(again, key=lambda entry: entry.problem)
    alone = settings.evolve(ahead=False)
    for entry, item in _spread(last, alone, 1, profile=timing):
        settle(entry, item.evolve(alone=True))
    return tuple(found[_key(entry)] for entry in entries)


def _key(entry: CorpusEntry) -> str:
    return f"{entry.kind}/{entry.name}"


def _spread(
    entries: Sequence[CorpusEntry], settings: CorpusSettings, jobs: int, *, profile: bool = False
) -> Iterator[tuple[CorpusEntry, CorpusFinding]]:
    """Each finding as it comes. A process that ends takes only its own candidate with it."""
    waiting = _by_problem(entries)
    running: dict[Future[CorpusFinding], tuple[JudgeProcess, CorpusEntry]] = {}
    with _processes(min(jobs, len(waiting)), settings) as idle:
        every = list(idle)
        while waiting or running:
            while idle and waiting:
                judge_process = idle.pop()
                entry = _next(waiting, judge_process, every)
                judge_process.problems.add(entry.problem)
                timed = profile and entry.gate == "timing"
                running[judge_process.executor.submit(_judge, entry, timed)] = (
                    judge_process,
                    entry,
                )
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                judge_process, entry = running.pop(future)
                item = _result(future, alone=jobs == 1)
                if item is None:
                    item = undecided_finding(entry, _reason(future))
                    _renew(judge_process, settings)
                idle.append(judge_process)
                yield entry, item


def _result(future: Future[CorpusFinding], *, alone: bool) -> CorpusFinding | None:
    """None where the process ended, or raised what no judge should. A worker that did not start may
    lack what a neighbour holds, device memory say: that counts where there is none."""
    try:
        return future.result()
    except EnvironmentFailure:
        if alone:
            raise
        return None
    except Exception:  # noqa: BLE001 - a candidate may have brought down the judge's own device context
        return None


def _reason(future: Future[CorpusFinding]) -> str:
    error = future.exception()
    if error is None or isinstance(error, BrokenProcessPool):
        return "the judge's own process ended"
    return f"the judge raised {type(error).__name__}: {one_line(error, 120)}"


def _renew(judge_process: JudgeProcess, settings: CorpusSettings) -> None:
    """What is left of the old process is not to be trusted."""
    judge_process.executor.shutdown(wait=False, cancel_futures=True)
    judge_process.executor = _executor(settings)
    judge_process.problems.clear()


def _by_problem(entries: Sequence[CorpusEntry]) -> list[CorpusEntry]:
    """Problems with many candidates first: they take the longest."""
    counts = Counter(entry.problem for entry in entries)
    return sorted(entries, key=lambda entry: (-counts[entry.problem], entry.problem, entry.name))


def _next(
    waiting: list[CorpusEntry], judge_process: JudgeProcess, every: Sequence[JudgeProcess]
) -> CorpusEntry:
    """Of the lane's own problems first, then of one that no lane has, then any."""
    taken = set().union(*(item.problems for item in every))
    own = next((entry for entry in waiting if entry.problem in judge_process.problems), None)
    fresh = next((entry for entry in waiting if entry.problem not in taken), None)
    entry = own or fresh or waiting[0]
    waiting.remove(entry)
    return entry


@contextmanager
def _processes(count: int, settings: CorpusSettings) -> Iterator[list[JudgeProcess]]:
    judge_processes = [JudgeProcess(_executor(settings)) for _ in range(count)]
    try:
        yield list(judge_processes)
    finally:
        for judge_process in judge_processes:
            judge_process.executor.shutdown(wait=True, cancel_futures=True)


def _executor(settings: CorpusSettings) -> ProcessPoolExecutor:
    """A process of its own: seeds are drawn from torch's global generator. It is forked from one
    that has the imports behind it and has not touched CUDA."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch", "agentkernel.tools.judge.judge"])
    return ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(settings,))


_bench: list[CorpusJudge] = []
"""This process's own bench, once it is a lane."""


def _prepare(settings: CorpusSettings) -> None:
    import torch

    torch.set_num_threads(settings.threads)
    _bench[:] = [CorpusJudge(settings)]


def _judge(entry: CorpusEntry, profile: bool) -> CorpusFinding:
    found = _bench[0].judge(entry, profile=profile)
    if _bench[0].device == "cuda":
        import torch

        torch.cuda.empty_cache()
    return found
