"""Is the power right although the counter moves in coarse steps?"""

from __future__ import annotations

import pytest

from agentkernel.tools.profile.energy import EnergyPoint, average_power_w


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
