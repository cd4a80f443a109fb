"""Seconds of a run by stage: what it does now, and what other processes do beside it.

Every moment of the run's own thread counts for the innermost stage that is open, so that the
stages add up to the wall time. What works beside it is told apart: those seconds overlap.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentkernel.domain.base import Frozen

OTHER = "other"
"""The stage of moments in which none is open."""


class StageTime(Frozen):
    """Wall seconds of one stage. `overlapped`: spent beside the run's own stages, by another
    process or thread; such seconds are no part of the run's wall time."""

    stage: str
    seconds: float
    overlapped: bool = False


class StageClock:
    """The stages of one run, told by the thread that made this."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._thread = threading.get_ident()
        self._open = [OTHER]
        self._seconds: dict[str, float] = {}
        self._beside: dict[str, float] = {}
        self._turned = self.began = now()
        self._at = [""]

    def add(self, stage: str, seconds: float) -> None:
        """Seconds of `stage` that were over before this clock was there."""
        self.began -= seconds
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def add_overlapped(self, stage: str, seconds: float) -> None:
        """Seconds that somebody worked beside the run."""
        self._beside[stage] = self._beside.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Let the moments inside count for `name`; in another thread they overlap."""
        if threading.get_ident() != self._thread:
            began = self._now()
            try:
                yield
            finally:
                self.add_overlapped(name, self._now() - began)
            return
        self._turn()
        self._open.append(name)
        self._at.append("")
        try:
            yield
        finally:
            self._turn()
            self._open.pop()
            self._at.pop()

    def at(self, text: str) -> None:
        """What the open stage is at, `12 of 35 cases`; forgotten as it ends. Another thread's word
        does not count."""
        if threading.get_ident() == self._thread:
            self._at[-1] = text

    @property
    def doing(self) -> str:
        """What the open stages are at, and the name of the innermost one: `fused; search: 24
        schedules are compiled`; "" for nothing. Any thread may ask."""
        name, (*outer, last) = self._open[-1], self._at[:]
        inner = ": ".join(part for part in ("" if name == OTHER else name, last) if part)
        return "; ".join(part for part in (*outer, inner) if part)

    def wall_s(self) -> float:
        """Seconds since the run began."""
        return self._now() - self.began

    def times(self) -> tuple[StageTime, ...]:
        """Every stage so far, in the order of their beginnings; the overlapped ones last."""
        self._turn()
        own = [StageTime(stage=name, seconds=value) for name, value in self._seconds.items()]
        beside = (
            StageTime(stage=name, seconds=value, overlapped=True)
            for name, value in self._beside.items()
        )
        return (*sorted(own, key=lambda item: item.stage == OTHER), *beside)

    def _turn(self) -> None:
        now = self._now()
        name = self._open[-1]
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._turned
        self._turned = now


_clock: ContextVar[StageClock | None] = ContextVar("stages", default=None)


@contextmanager
def recording(new: StageClock | None = None) -> Iterator[StageClock]:
    """The clock of the stages inside, `new` where one is given; the one that is recording already,
    where there is one."""
    running = _clock.get()
    if running is not None:
        yield running
        return
    clock = new or StageClock()
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Let what is inside count for the stage `name`; nothing where nobody records."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    with clock.stage(name):
        yield


def at(text: str) -> None:
    """The open stage is at `text`, `12 of 35 cases`, for whoever watches; nothing where nobody
    records."""
    clock = _clock.get()
    if clock is not None:
        clock.at(text)


def current() -> StageClock | None:
    """The clock that records here."""
    return _clock.get()


def overlapped(name: str, seconds: float) -> None:
    """Somebody worked for `seconds` beside the run; nothing where nobody records."""
    clock = _clock.get()
    if clock is not None:
        clock.add_overlapped(name, seconds)


def process_age_s() -> float:
    """Seconds since the system started this process (Linux: proc(5), field 22 of `stat`)."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
