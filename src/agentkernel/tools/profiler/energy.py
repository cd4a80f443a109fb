"""How much energy does one call take?"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from agentkernel.tools.profiler.nvml import Gauge
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.sides import RemoteSide

PERIOD_S = 0.004
TRIES = 3
"""A counter that ticked less than twice is watched again, each time twice as long."""


class EnergyPoint(NamedTuple):
    """The GPU's energy counter at a moment, in millijoules and seconds."""

    time_s: float
    energy_mj: float


def average_power_w(points: Sequence[EnergyPoint]) -> float | None:
    """Mean power from the counter's ticks; None where it ticked less than twice.

    The counter moves in steps of 20 to 100 ms, depending on the GPU. Only the span between the
    first and the last step counts, so that the step's length does not matter.
    """
    ticks = [now for before, now in itertools.pairwise(points) if now.energy_mj > before.energy_mj]
    if len(ticks) < 2:
        return None
    first, last = ticks[0], ticks[-1]
    return (last.energy_mj - first.energy_mj) / 1e3 / (last.time_s - first.time_s)


def energy_per_call_mj(side: RemoteSide, gauge: Gauge, seconds: float) -> float | SideFailed | None:
    """Millijoules a call from calls back to back (warm L2) for `seconds`, longer where a busy host
    or a slow counter showed less than two ticks; None where the GPU has no energy counter."""
    if gauge.energy_mj() is None:
        return None
    for attempt in range(TRIES):
        points: list[EnergyPoint] = []
        with _polled(gauge, points):
            done = side.sustain(seconds * 2**attempt)
        if isinstance(done, SideFailed):
            return done
        power = average_power_w(points)
        if power is not None:
            return power * done.seconds / done.calls * 1e3
    return None


@contextmanager
def _polled(gauge: Gauge, points: list[EnergyPoint]) -> Iterator[None]:
    """Appends the counter's readings to `points` while the block runs."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(PERIOD_S):
            value = gauge.energy_mj()
            if value is not None:
                points.append(EnergyPoint(time.monotonic(), value))

    thread = threading.Thread(target=poll, daemon=True, name="nvml-energy")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
