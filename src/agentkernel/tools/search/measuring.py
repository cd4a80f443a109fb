"""Which schedule is the fastest on the GPU that is here?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.target import Target
from agentkernel.runtime import gate
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.profiler.timing.bench import Device, flush_bytes
from agentkernel.tools.sandbox.session import prefork_worker, settle_idle_workers
from agentkernel.tools.sandbox.time_limit import search_seconds
from agentkernel.tools.search.agreement import Sketch, disagreements
from agentkernel.tools.search.bench_worker import ScheduleWorker
from agentkernel.tools.search.halving import ScheduleTime, halve_successively
from agentkernel.tools.search.pruning import BUDGET_SPENT, compile_all, prune
from agentkernel.tools.search.static import Schedule, estimate_all

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
        with gate.shared():
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
        with self._through(gate.exclusive()):
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
        with self._through(gate.shared()):
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
            with gate.without_gpu():
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
