"""Ranking of schedules by measurement on the GPU, with successive halving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import NamedTuple, Protocol

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.target import Target
from agentkernel.runtime import gpu_lock
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.timing.stopwatch import Device, flush_bytes
from agentkernel.tools.sandbox.session import prefork_worker, search_seconds, settle_idle_workers
from agentkernel.tools.search.static import BUDGET_SPENT, Schedule, compile_all, estimate_all, prune
from agentkernel.tools.search.worker import ScheduleWorker, Sketch, disagreements

FINALISTS = 3


class Stage(NamedTuple):
    """Calls of one stage, in blocks that alternate between the schedules."""

    calls: int
    blocks: int


STAGES = (Stage(5, 1), Stage(20, 2), Stage(100, 10))
"""All of them, then the best third, then the best three interleaved."""


class Timer(Protocol):
    """Times one block of a schedule; None where it failed (the caller knows why)."""

    def __call__(self, index: int, calls: int) -> Sequence[float] | None: ...


class ScheduleTime(NamedTuple):
    """What is known of a schedule at the end: its median in microseconds and the stages it saw."""

    time_us: float
    stage: int


def halve_successively(
    indices: Sequence[int],
    timer: Timer,
    time_left: Callable[[], bool],
    alone: Callable[[Sequence[int]], AbstractContextManager[None]] = lambda field: nullcontext(),
) -> dict[int, ScheduleTime]:
    """Median times of the schedules, measured the more carefully the better they are.

    All of it runs inside `alone(indices)`, in which nothing else uses the device: the way in, for
    which everybody else has to come out, takes longer than the calls.

    A schedule that drops out never ranks before one that went on: its time is raised to the slowest
    of the next stage where it reads lower. Schedules that fail, or whose turn never comes, are left
    out. Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", AISTATS 2016.
    """
    times_by_schedule: dict[int, ScheduleTime] = {}
    field = list(indices)
    with alone(field):
        for number, stage in enumerate(STAGES):
            found = _run_stage(field, stage, timer, time_left)
            for index in found.failed:
                times_by_schedule.pop(index, None)
            if number == 0 or found.complete:
                times_by_schedule |= {
                    i: ScheduleTime(value, number) for i, value in found.times.items()
                }
            if not found.complete:
                break
            ranked = sorted(found.times, key=lambda index: found.times[index])
            field = ranked[: max(FINALISTS, -(-len(ranked) // 3)) if number == 0 else FINALISTS]
    return _consistent(times_by_schedule)


class _Found(NamedTuple):
    """Medians in microseconds, who failed, and whether time sufficed for everyone."""

    times: dict[int, float]
    failed: frozenset[int]
    complete: bool


def _run_stage(
    field: Sequence[int], stage: Stage, timer: Timer, time_left: Callable[[], bool]
) -> _Found:
    samples: dict[int, list[float]] = {index: [] for index in field}
    failed: set[int] = set()
    complete = True
    for block in range(stage.blocks):
        for index in field if block % 2 == 0 else reversed(field):
            if index in failed:
                continue
            complete = complete and time_left()
            found = timer(index, stage.calls // stage.blocks) if complete else ()
            if found is None:
                failed.add(index)
            else:
                samples[index].extend(found)
    times = {
        index: median(values) for index, values in samples.items() if values and index not in failed
    }
    return _Found(times, frozenset(failed), complete)


def _consistent(times_by_schedule: dict[int, ScheduleTime]) -> dict[int, ScheduleTime]:
    """Raise the time of whoever dropped out to that of the slowest who went on."""
    result: dict[int, ScheduleTime] = {}
    floor = 0.0
    for number in sorted({item.stage for item in times_by_schedule.values()}, reverse=True):
        here = {index: item for index, item in times_by_schedule.items() if item.stage == number}
        result |= {
            index: ScheduleTime(max(item.time_us, floor), number) for index, item in here.items()
        }
        floor = max([floor, *(item.time_us for item in here.values())])
    return result


COMPILE_SHARE = 0.4
"""Share of the budget in which cross-compilation may begin."""
GROUP = 8
"""Schedules that are loaded at once; where one kills the worker, each is loaded by itself."""
WARM_SHARE = 0.7
"""Share of the time that compilation left in which further groups may be loaded."""
LEAST_RACE_S = 5.0
"""What is loaded gets timed: for so long even when the budget is spent."""
TOO_SLOW = 4.0
"""A schedule this many times slower than the best so far is timed by one call."""


class MeasuringSearcher:
    """Prunes like StaticSearcher, then times what is left in one sandboxed worker.

    Cold L2, few calls each, successive halving (see halving.halve). A schedule that raises, dies or
    computes something else than most is out, with the reason in `TrialResult.pruned`. The budget is
    `seconds` of wall time; what does not get its turn is out as well. The first group in order of
    the estimate always gets its turn.
    """

    def __init__(
        self,
        seconds: float = 25.0,
        *,
        seed: int = 0,
        device: Device = "cuda",
        allow_unsandboxed: bool = False,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._make_room = make_room
        self._seconds = seconds
        self._seed = seed
        self._device: Device = device
        self._allow_unsandboxed = allow_unsandboxed

    def rank(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        labels: Sequence[str],
        schedules: Sequence[Schedule],
        target: Target,
    ) -> tuple[TrialResult, ...]:
        """One result a source, in the order given; `time_us` is measured, in microseconds."""
        seconds = search_seconds(self._seconds)
        end = time.monotonic() + seconds
        outcomes = compile_all(
            problem,
            sources,
            target,
            seconds=seconds * COMPILE_SHARE,
            allow_unsandboxed=self._allow_unsandboxed,
        )
        pruned = dict(enumerate(prune(outcomes)))
        estimates = estimate_all(problem, outcomes, target)
        kept = [index for index, reason in pruned.items() if reason is None]
        kept.sort(key=lambda index: (estimates[index] or math.inf, index))
        times_by_schedule, reasons = (
            self._race(problem, sources, kept, target, end) if kept else ({}, {})
        )
        reasons = pruned | reasons
        return tuple(
            TrialResult(
                label=labels[index],
                sha256=sha256_text(source),
                schedule=schedules[index],
                pruned=None if index in times_by_schedule else reasons[index] or BUDGET_SPENT,
                time_us=times_by_schedule[index].time_us if index in times_by_schedule else None,
                estimated_us=estimates[index],
            )
            for index, source in enumerate(sources)
        )

    def _race(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        kept: Sequence[int],
        target: Target,
        end_s: float,
    ) -> tuple[dict[int, ScheduleTime], dict[int, str | None]]:
        if self._device == "cuda":
            prefork_worker(
                device="cuda",
                interpret=False,
                allow_unsandboxed=self._allow_unsandboxed,
                count=2,
            )
        before = time.monotonic()
        with gpu_lock.shared():
            end_s += time.monotonic() - before
            self._make_room()
            opened = ScheduleWorker(
                problem,
                device=self._device,
                seed=self._seed,
                flush_bytes=flush_bytes(target.l2_mb.value) if self._device == "cuda" else 1 << 16,
                allow_unsandboxed=self._allow_unsandboxed,
            )
        with opened as bench:
            race = _HalvingSearch(bench, sources, end_s)
            return race.run(kept), race.reasons


class _HalvingSearch:
    """One search on one worker: who is ready, who is out and why, and the best time so far."""

    def __init__(
        self,
        bench: ScheduleWorker,
        sources: Sequence[str],
        end_s: float,
    ) -> None:
        self._bench = bench
        self._sources = sources
        self._end_s = end_s
        self._ready: set[int] = set()
        self._last_us: dict[int, float] = {}
        self.reasons: dict[int, str | None] = {}

    def run(self, indices: Sequence[int]) -> dict[int, ScheduleTime]:
        sketches: dict[int, Sketch] = {}
        now = time.monotonic()
        race_s = (1 - WARM_SHARE) * (self._end_s - now)
        for begin in range(0, len(indices), GROUP):
            if begin and time.monotonic() > self._end_s - race_s:
                break
            sketches |= self._warm(indices[begin : begin + GROUP])
        self.reasons |= disagreements(sketches)
        settle_idle_workers()
        self._end_s = max(self._end_s, time.monotonic() + LEAST_RACE_S)
        field = [index for index in indices if index in sketches and index not in self.reasons]
        return halve_successively(field, self._time, self._time_left, self._alone)

    @contextmanager
    def _alone(self, field: Sequence[int]) -> Iterator[None]:
        """The device is the race's own. What a death unloaded is loaded before: nobody may have to
        wait while schedules compile."""
        self._load(index for index in field if index not in self.reasons)
        with self._through(gpu_lock.exclusive()):
            yield

    @contextmanager
    def _through(self, lock: AbstractContextManager[None]) -> Iterator[None]:
        """Waiting for others is not the race's time."""
        before = time.monotonic()
        with lock:
            self._end_s += time.monotonic() - before
            yield

    def _load(self, indices: Iterable[int]) -> None:
        for index in indices:
            if not self._bench.alive(index):
                self._warm([index])

    def _warm(self, group: Sequence[int]) -> dict[int, Sketch]:
        self._bench.open()
        with self._through(gpu_lock.shared()):
            found = self._bench.warm([(index, self._sources[index]) for index in group])
        if found is None and len(group) > 1:
            return {key: item for index in group for key, item in self._warm([index]).items()}
        if found is None:
            self.reasons[group[0]] = f"kills its process: {self._bench.last_failure}"
            return {}
        self.reasons |= {key: item.reason for key, item in found.broken.items()}
        self._ready |= set(found.sketches)
        return found.sketches

    def _time(self, index: int, calls: int) -> Sequence[float] | None:
        if index in self.reasons:
            return None
        if not self._bench.alive(index):
            with gpu_lock.without_gpu():
                self._load([index])
            if index in self.reasons:
                return None
        best = min(self._last_us.values(), default=math.inf)
        found = self._bench.time_block(
            index, calls, last_us=self._last_us.get(index, 0.0), limit_us=TOO_SLOW * best
        )
        if found is None:
            self.reasons[index] = f"failed while it was timed: {self._bench.last_failure}"
            return None
        self._last_us[index] = min(found)
        return found

    def _time_left(self) -> bool:
        return time.monotonic() < self._end_s
