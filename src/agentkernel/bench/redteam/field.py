"""How is a whole corpus judged at once? Several processes, each with problems of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from agentkernel.bench.redteam.bench import CorpusJudge, CorpusSettings, undecided_finding
from agentkernel.bench.redteam.corpus import CorpusEntry
from agentkernel.bench.redteam.finding import CorpusFinding
from agentkernel.bench.redteam.journal import Journal
from agentkernel.domain.errors import EnvironmentFailure, one_line

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
    alone = settings.model_copy(update={"ahead": False})
    for entry, item in _spread(last, alone, 1, profile=timing):
        settle(entry, item.model_copy(update={"alone": True}))
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
