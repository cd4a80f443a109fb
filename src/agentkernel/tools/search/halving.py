"""How are many schedules told apart with few calls? By successive halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import NamedTuple, Protocol

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
