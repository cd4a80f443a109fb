"""Ranking of schedules by measurement on the GPU, with coordinate descent and halving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import median
from typing import NamedTuple, Protocol

from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.target import Target
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.pool import first_at_processors
from agentkernel.runtime.stages import stage
from agentkernel.runtime.timed_cpus import compiling_cpus
from agentkernel.tools.compile.candidate import Binary, by_weight
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.timing.stopwatch import Device, flush_bytes
from agentkernel.tools.sandbox.session import prefork_worker, search_seconds, settle_idle_workers
from agentkernel.tools.search.descent import Descent
from agentkernel.tools.search.space import (
    Estimator,
    Forms,
    Schedule,
    Space,
    compile_spaces,
)
from agentkernel.tools.search.static import BUDGET_SPENT, estimate_all, estimate_alone, prune
from agentkernel.tools.search.worker import Entry, ScheduleWorker, Sketch, disagreements

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


Further = Callable[[Mapping[int, float]], Sequence[int]]
"""By medians in microseconds of the first stage: who else is to go through it."""


def nobody(_: Mapping[int, float]) -> Sequence[int]:
    """No others."""
    return ()


class ScheduleTime(NamedTuple):
    """What is known of a schedule at the end: its median in microseconds and the stages it saw."""

    time_us: float
    stage: int


def halve_successively(
    indices: Sequence[int],
    timer: Timer,
    time_left: Callable[[], bool],
    further: Further = nobody,
) -> dict[int, ScheduleTime]:
    """Median times of the schedules, measured the more carefully the better they are; `further`
    names more of them once the first stage is through.

    A schedule that drops out never ranks before one that went on: its time is raised to the slowest
    of the next stage where it reads lower. Schedules that fail, or whose turn never comes, are left
    out. Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", AISTATS 2016.
    """
    times_by_schedule: dict[int, ScheduleTime] = {}
    field = list(indices)
    for number, part in enumerate(STAGES):
        found = _run_stage(field, part, timer, time_left)
        while number == 0 and found.complete and (more := further(found.times)):
            found = found.plus(_run_stage(more, part, timer, time_left))
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

    def plus(self, other: _Found) -> _Found:
        """Both together."""
        return _Found(
            self.times | other.times, self.failed | other.failed, self.complete and other.complete
        )


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


COMPILE_SHARE = 0.5
"""Share of the budget in which cross-compilation may begin."""
GROUP = 8
"""Schedules that are loaded at once; where one kills the worker, each is loaded by itself."""
WARM_SHARE = 0.7
"""Share of the time that compilation left in which further groups may be loaded."""
DESCENT_SHARE = 0.3
"""Share of the time that is left for a space in which further schedules of it may be loaded."""
LEAST_RACE_S = 5.0
"""What is loaded gets timed: for so long even when the budget is spent."""
TOO_DEAR = "its estimate is above that of those that were measured"
TOO_SLOW = 4.0
"""A schedule this many times slower than the best so far is timed by one call."""


TUNE_SHARE = 0.6
"""Share of the search's seconds for parts that are timed alone; the rest is for whole drop-ins."""
FEW, FEW_SHARE = 4, 0.5
"""So many whole sources need no more than that share."""
MOST_SAMPLED, COMPILED_A_CORE = 192, 6
"""Sources beyond the best guesses in one search, and how many of them a core compiles in time: a
second each."""
MOST_MEASURED = 24
"""Sources of one space that are measured, the cheapest by estimate."""
BATCH_SHARE = 0.25
"""Of the device's free memory, what the tensors of problems that are held at once may take."""


class MeasuringSearcher:
    """Prunes like StaticSearcher, then times what is left in one sandboxed worker.

    Cold L2, few calls each, successive halving (see halve_successively). A schedule that raises,
    dies or computes something else than most is out, with the reason in `TrialResult.pruned`. The
    budget is `seconds` of wall time; what does not get its turn is out as well. The first group in
    order of the estimate always gets its turn.
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
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:
        """One result a source, in the order given, then one for each of the `forms` of the fastest
        after the first stage; `time_us` is measured, in microseconds. A few sources get `FEW_SHARE`
        of the seconds: what was tuned in parts is only compared."""
        space = Space(problem, tuple(sources), tuple(labels), tuple(schedules))
        share = FEW_SHARE if len(sources) <= FEW else 1.0
        seconds = share * search_seconds(self._seconds)
        return self._measured([space], target, estimate_all, seconds, forms)[0]

    @property
    def most_sampled(self) -> int:
        """What all cores compile in the share of the seconds that goes to that."""
        return min(MOST_SAMPLED, COMPILED_A_CORE * compiling_cpus())

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """The same for the parts of a model, each on its own tensors: at most `MOST_MEASURED`
        sources of each are measured, in `TUNE_SHARE` of the seconds."""
        seconds = TUNE_SHARE * search_seconds(self._seconds)
        return self._measured(spaces, target, estimate_alone, seconds)

    def _measured(
        self,
        spaces: Sequence[Space],
        target: Target,
        estimator: Estimator,
        seconds: float,
        forms: Forms | None = None,
    ) -> tuple[tuple[TrialResult, ...], ...]:
        end_s = time.monotonic() + seconds
        with stage("compile schedules"):
            compiled = compile_spaces(
                spaces,
                target,
                seconds=seconds * COMPILE_SHARE,
                allow_unsandboxed=self._allow_unsandboxed,
            )
        fields = [
            _Field(
                space,
                prune([item.outcome for item in made]),
                estimator(space, made, target),
                [item.binaries for item in made],
                forms,
            )
            for space, made in zip(spaces, compiled, strict=True)
        ]
        # What was begun in time may have ended late: the race has its share all the same.
        end_s = max(end_s, time.monotonic() + (1 - COMPILE_SHARE) * seconds)
        full = [item for item in fields if item.kept]
        batches = _batches(full, self._room()) if full else []
        for number, batch in enumerate(batches):
            left_s = end_s - time.monotonic()
            self._race(batch, target, time.monotonic() + left_s / (len(batches) - number))
        return tuple(field.results() for field in fields)

    def _room(self) -> float:
        if self._device == "cpu":
            return math.inf
        # It loads torch, which a search without a GPU does not need.
        from agentkernel.tools.judge.memory_count import device_free

        return BATCH_SHARE * device_free()

    def _race(self, fields: Sequence[_Field], target: Target, end_s: float) -> None:
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
                [field.space.problem for field in fields],
                device=self._device,
                seed=self._seed,
                flush_bytes=flush_bytes(target.l2_mb.value) if self._device == "cuda" else 1 << 16,
                allow_unsandboxed=self._allow_unsandboxed,
            )
        with opened as bench, stage("race schedules"):
            _HalvingSearch(bench, fields, end_s).run()


class _Field:
    """The sources of one space: who is out and why, what each would take, and what it took."""

    def __init__(
        self,
        space: Space,
        pruned: Sequence[str | None],
        estimates: Sequence[float | None],
        binaries: Sequence[tuple[Binary, ...]] = (),
        forms: Forms | None = None,
    ) -> None:
        self.space = space
        self.binaries = list(binaries)
        self._forms = forms
        self._entered_forms: set[int] = set()
        self.reasons: dict[int, str | None] = dict(enumerate(pruned))
        self._estimates = list(estimates)
        fit = [index for index, reason in self.reasons.items() if reason is None]
        hints = space.hints
        fit.sort(key=lambda index: (index not in hints, estimates[index] or math.inf, index))
        # What no core compiled in time would be compiled where all wait for it.
        compiled = [index for index in fit if estimates[index] is not None] or fit[:1]
        self.reasons |= dict.fromkeys(set(fit) - set(compiled), BUDGET_SPENT)
        fit = compiled
        self.descent = Descent(space.schedules, fit, MOST_MEASURED)
        """Begins with what was fast before, then the cheapest by estimate."""
        self.kept = self.descent.first()
        self.times: dict[int, ScheduleTime] = {}

    def following(self, times_us: Mapping[int, float]) -> Sequence[int]:
        """The next round of the descent: forms, which have no schedules of their own, are no part
        of it."""
        plain = {at: time for at, time in times_us.items() if at not in self._entered_forms}
        return self.descent.following(plain)

    def enter_forms(
        self, times_us: Mapping[int, float], device_us: Mapping[int, float]
    ) -> Sequence[int]:
        """The places of the forms of the fastest and of the fastest on the device, which launches
        may hold up; they take part from now on, and are asked for once."""
        if not times_us or self._forms is None:
            return ()
        forms, self._forms = self._forms, None
        first = len(self.space.sources)
        bests = [
            min(times_us, key=lambda index: (known.get(index, math.inf), index))
            for known in (device_us, times_us)
        ]
        for best in dict.fromkeys(bests):
            found = forms(best, device_us.get(best, times_us[best]))
            begin = len(self.space.sources)
            self.space = self.space.with_forms(best, found)
            for place in range(begin, begin + len(found)):
                self.reasons[place] = None
                self._estimates.append(None)
                self._entered_forms.add(place)
                if self.binaries:
                    self.binaries.append(self.binaries[best])
        return range(first, len(self.space.sources))

    def results(self) -> tuple[TrialResult, ...]:
        """What is known of each source."""
        return tuple(self._result(index) for index in range(len(self.space.sources)))

    def _result(self, index: int) -> TrialResult:
        found = self.times.get(index)
        asked = index in self._entered_forms or index in self.descent.chosen
        why = BUDGET_SPENT if asked else TOO_DEAR
        pruned = None if found else self.reasons[index] or why
        time_us = found.time_us if found else None
        return self.space.result(index, pruned, time_us, self._estimates[index])


def _batches(fields: Sequence[_Field], room_bytes: float) -> list[list[_Field]]:
    """The fields, together as long as their inputs fit in the room."""
    if room_bytes == math.inf:
        return [list(fields)]
    batches: list[list[_Field]] = []
    held = 0
    for field in fields:
        size = _input_bytes(field.space)
        if not batches or held + size > room_bytes:
            batches.append([])
            held = 0
        batches[-1].append(field)
        held += size
    return batches


def _input_bytes(space: Space) -> int:
    from agentkernel.tools.judge.memory_count import bytes_of, meta_inputs

    return bytes_of(meta_inputs(space.problem.problem.shape_sets[0]))


class _Entrant(NamedTuple):
    """A source of one of the fields."""

    field: int
    place: int


class _HalvingSearch:
    """One search on one worker: who is ready, who is out and why, and the best times so far."""

    def __init__(self, bench: ScheduleWorker, fields: Sequence[_Field], end_s: float) -> None:
        self._bench = bench
        self._fields = fields
        self._end_s = end_s
        self._last_us: list[dict[int, float]] = [{} for _ in fields]
        self._device_us: list[dict[int, float]] = [{} for _ in fields]
        self._sketches: dict[_Entrant, Sketch] = {}
        counts = [(len(field.kept), field.space.work_us) for field in fields]
        order = [_Entrant(number, fields[number].kept[at]) for number, at in by_weight(counts)]
        self._numbers = {entrant: number for number, entrant in enumerate(order)}
        self._descending: int | None = None
        self._descend_until_s = end_s

    def run(self) -> None:
        """Fill in the times of all fields, and the reasons of those who have none."""
        entrants = list(self._numbers)
        now = time.monotonic()
        race_s = (1 - WARM_SHARE) * (self._end_s - now)
        for begin in range(0, len(entrants), GROUP):
            if begin and time.monotonic() > self._end_s - race_s:
                break
            self._sketches |= self._warm(entrants[begin : begin + GROUP])
        for number, field in enumerate(self._fields):
            field.reasons |= self._disagreements(number)
        settle_idle_workers()
        self._end_s = max(self._end_s, time.monotonic() + LEAST_RACE_S)
        reasons = [field.reasons for field in self._fields]
        ready = [item for item in self._sketches if reasons[item.field][item.place] is None]
        with self._alone(ready):
            for number, field in enumerate(self._fields):
                indices = [item.place for item in ready if item.field == number]
                timer, further = partial(self._time, number), partial(self._further, number)
                field.times = halve_successively(indices, timer, self._time_left, further)

    def _disagreements(self, number: int) -> dict[int, str]:
        own = {item.place: found for item, found in self._sketches.items() if item.field == number}
        return disagreements(own)

    def _further(self, number: int, times_us: Mapping[int, float]) -> Sequence[int]:
        """The next round of a field's descent, loaded; once its share of the time is over the forms
        of its fastest, then none."""
        field = self._fields[number]
        now = time.monotonic()
        share_s = DESCENT_SHARE * (self._end_s - now) / (len(self._fields) - number)
        if self._descending != number:
            self._descending, self._descend_until_s = number, now + share_s
        while time.monotonic() < self._descend_until_s:
            group = field.following(times_us)
            if not group:
                break
            if fit := self._entered(number, group):
                return fit
        fit = self._entered(number, field.enter_forms(times_us, self._device_us[number]))
        if fit:
            self._end_s = max(self._end_s, time.monotonic() + LEAST_RACE_S)
        return fit

    def _entered(self, number: int, places: Sequence[int]) -> list[int]:
        """Those of the places of a field that can be timed, once all are loaded."""
        group = [_Entrant(number, place) for place in places]
        if not group:
            return []
        self._numbers |= {item: len(self._numbers) + at for at, item in enumerate(group)}
        with gpu_lock.without_gpu():
            self._sketches |= self._warm(group)
        disagreeing = self._disagreements(number)
        for item in group:
            if item.place in disagreeing:
                self._out(item, disagreeing[item.place])
        reasons = self._fields[number].reasons
        return [item.place for item in group if reasons[item.place] is None]

    @contextmanager
    def _alone(self, entrants: Sequence[_Entrant]) -> Iterator[None]:
        """The device is the race's own: the way in, for which everybody else has to come out, takes
        longer than the calls. What a death unloaded is loaded before: nobody may have to wait while
        schedules compile."""
        self._load(entrants)
        with self._through(gpu_lock.exclusive()), first_at_processors(self._bench.pids):
            yield

    @contextmanager
    def _through(self, lock: AbstractContextManager[None]) -> Iterator[None]:
        """Waiting for others is not the race's time."""
        before = time.monotonic()
        with lock:
            self._end_s += time.monotonic() - before
            yield

    def _load(self, entrants: Iterable[_Entrant]) -> None:
        for item in entrants:
            out = self._fields[item.field].reasons[item.place]
            if out is None and not self._bench.alive(self._numbers[item]):
                self._warm([item])

    def _warm(self, group: Sequence[_Entrant]) -> dict[_Entrant, Sketch]:
        self._bench.open()
        with self._through(gpu_lock.shared()), stage("load schedules"):
            found = self._bench.warm([self._entry(item) for item in group])
        if found is None and len(group) > 1:
            return {key: item for entrant in group for key, item in self._warm([entrant]).items()}
        if found is None:
            self._out(group[0], f"kills its process: {self._bench.last_failure}")
            return {}
        for item in group:
            if self._numbers[item] in found.broken:
                self._out(item, found.broken[self._numbers[item]].reason)
        return {
            item: found.sketches[self._numbers[item]]
            for item in group
            if self._numbers[item] in found.sketches
        }

    def _entry(self, item: _Entrant) -> Entry:
        field = self._fields[item.field]
        source = field.space.sources[item.place]
        binaries = field.binaries[item.place] if field.binaries else ()
        return Entry(self._numbers[item], source, item.field, binaries)

    def _out(self, item: _Entrant, reason: str) -> None:
        self._fields[item.field].reasons[item.place] = reason

    def _time(self, number: int, index: int, calls: int) -> Sequence[float] | None:
        item, reasons = _Entrant(number, index), self._fields[number].reasons
        if reasons[index] is not None:
            return None
        if not self._bench.alive(self._numbers[item]):
            with gpu_lock.without_gpu():
                self._load([item])
            if reasons[index] is not None:
                return None
        last_us = self._last_us[number]
        found = self._bench.time_block(
            self._numbers[item],
            calls,
            last_us=last_us.get(index, 0.0),
            limit_us=TOO_SLOW * min(last_us.values(), default=math.inf),
            whole=not self._fields[number].space.segment,
        )
        if found is None:
            self._out(item, f"failed while it was timed: {self._bench.last_failure}")
            return None
        last_us[index] = min(found.us)
        self._device_us[number][index] = median(found.device_us)
        return found.us

    def _time_left(self) -> bool:
        return time.monotonic() < self._end_s
