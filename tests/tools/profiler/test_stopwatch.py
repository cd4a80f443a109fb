"""What events and the flush add is taken off, and nothing else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.profiler.timing.stopwatch import (
    CallTimer,
    KernelLaunch,
    median_launches,
    subtract_event_time,
)

times = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=20)


@given(times, st.floats(0, 10))
def test_a_time_keeps_its_order_and_at_least_half_of_itself(samples, event_us):
    found = subtract_event_time(samples, event_us)
    for before, after in zip(samples, found, strict=True):
        assert 0.5 * before <= after <= before
        assert after == pytest.approx(before - event_us) or before < 2 * event_us
    by_time = sorted(zip(samples, found, strict=True))
    assert [item[1] for item in by_time] == sorted(found)


def test_the_cpu_has_no_events():
    assert CallTimer("cpu", 64).event_us() == 0.0


def test_of_several_calls_each_kernels_median_without_the_flush():
    calls = [(9.0, 2.0, 5.0), (9.0, 3.0, 5.5), (9.0, 40.0, 4.5)]
    found = [
        KernelLaunch(name, us)
        for call in calls
        for name, us in zip(("flush", "one", "two"), call, strict=True)
    ]
    assert median_launches(found, 3) == (KernelLaunch("one", 3.0), KernelLaunch("two", 5.0))
    assert median_launches(found[:-1], 3) == ()


def test_calls_that_are_not_alike_have_no_medians():
    """Three kernels in even calls and one in odd ones are a multiple too."""
    few, many = ["flush", "one"], ["flush", "one", "two", "three"]
    found = [KernelLaunch(name, 5.0) for names in (many, few, many, few) for name in names]
    assert len(found) % 4 == 0
    assert median_launches(found, 4) == ()


class Launching(CallTimer):
    """Of a GPU whose work nobody waits for."""

    def __init__(self) -> None:
        super().__init__("cpu", 64)
        self.device = "cuda"
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1


def test_launching_takes_the_processors_time():
    assert CallTimer("cpu", 64).enqueue_us(lambda: time.sleep(0.01)) == 0.0
    timer = Launching()
    assert 1_000 <= timer.enqueue_us(lambda: time.sleep(0.001)) < 100_000
    assert timer.waits == 3
