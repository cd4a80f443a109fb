"""The power is right although the counter moves in coarse steps."""

from __future__ import annotations

import time
from typing import cast

import pytest

from agentkernel.tools.profiler.comparison import EnergyPoint, average_power_w, energy_per_call_mj
from agentkernel.tools.profiler.nvml import Gauge
from agentkernel.tools.profiler.rounds import RemoteSide
from agentkernel.tools.profiler.timing.stopwatch import Sustained


def staircase(power_w: float, step_s: float, span_s: float, offset_s: float) -> list[EnergyPoint]:
    """A counter that is brought up to date every `step_s`, looked at every 4 ms."""
    looks = [number * 0.004 for number in range(int(span_s / 0.004))]
    return [
        EnergyPoint(now, power_w * 1e3 * ((now + offset_s) // step_s) * step_s) for now in looks
    ]


@pytest.mark.parametrize("offset_s", [0.0, 0.03, 0.07, 0.099])
@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_steps_of_the_counter_do_not_matter(step_s: float, offset_s: float) -> None:
    points = staircase(600.0, step_s, 0.45, offset_s)
    assert average_power_w(points) == pytest.approx(600.0, rel=0.05)


def test_a_counter_that_hardly_moves_says_nothing() -> None:
    assert average_power_w(staircase(600.0, 1.0, 0.4, 0.0)) is None
    assert average_power_w([]) is None


class SlowCounter:
    """Moves by one joule a look, but only while a run of at least `from_s` goes on."""

    def __init__(self, from_s: float) -> None:
        self.from_s = from_s
        self.runs_s: list[float] = []
        self.energy = 0.0

    def energy_mj(self) -> float:
        if self.runs_s and self.runs_s[-1] >= self.from_s:
            self.energy += 1000.0
        return self.energy

    def sustain(self, seconds: float) -> Sustained:
        self.runs_s.append(seconds)
        time.sleep(0.05)
        return Sustained(calls=5, seconds=0.05)


@pytest.mark.parametrize(("from_s", "runs_s"), [(0.01, [0.01]), (0.03, [0.01, 0.02, 0.04])])
def test_a_counter_without_two_ticks_is_watched_longer(from_s: float, runs_s: list[float]) -> None:
    counter = SlowCounter(from_s)
    energy = energy_per_call_mj(cast(RemoteSide, counter), cast(Gauge, counter), 0.01)
    assert energy is not None
    assert energy > 0.0
    assert counter.runs_s == runs_s


def test_a_counter_that_never_ticks_ends_in_none() -> None:
    counter = SlowCounter(1.0)
    assert energy_per_call_mj(cast(RemoteSide, counter), cast(Gauge, counter), 0.01) is None
    assert len(counter.runs_s) == 3
