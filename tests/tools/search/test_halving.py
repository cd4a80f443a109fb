"""Halving finds the fastest of many noisy schedules with few calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.search.measuring import STAGES, halve_successively


class NoisyTimes:
    """Schedules of known time; counts the calls that were spent on each."""

    def __init__(self, times_us: Sequence[float], noise: float = 0.0, seed: int = 0) -> None:
        self.times_us = times_us
        self.calls: dict[int, int] = {}
        self.failing: dict[int, int] = {}
        self._noise = noise
        self._random = random.Random(seed)

    def __call__(self, index: int, calls: int) -> list[float] | None:
        self.calls[index] = self.calls.get(index, 0) + calls
        if self.calls[index] > self.failing.get(index, 10**9):
            return None
        return [
            self.times_us[index] * (1 + abs(self._random.gauss(0, self._noise)))
            for _ in range(calls)
        ]


def always() -> bool:
    return True


def within(blocks: int) -> Callable[[], bool]:
    """Time for that many blocks."""
    left = [blocks]

    def time_left() -> bool:
        left[0] -= 1
        return left[0] >= 0

    return time_left


def best(times_by_schedule: dict[int, object]) -> int:
    return min(times_by_schedule, key=lambda index: times_by_schedule[index].time_us)  # type: ignore[attr-defined]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(10, 1000), min_size=1, max_size=40), st.integers(0, 100))
def test_without_noise_the_fastest_wins_and_everyone_is_ranked_right(
    times_us: list[float], seed: int
) -> None:
    found = halve_successively(range(len(times_us)), NoisyTimes(times_us), always)
    assert len(found) == len(times_us)
    assert times_us[best(found)] == min(times_us)


def test_calls_go_to_the_good_ones() -> None:
    times = NoisyTimes([100.0 + index for index in range(30)])
    halve_successively(range(30), times, always)
    assert times.calls[0] == sum(stage.calls for stage in STAGES)
    assert times.calls[29] == STAGES[0].calls
    assert sum(times.calls.values()) < 30 * 25


@pytest.mark.parametrize("seed", range(8))
def test_with_noise_the_winner_is_within_two_percent(seed: int) -> None:
    times = NoisyTimes([100.0 * 1.01**index for index in range(24)], noise=0.02, seed=seed)
    assert times.times_us[best(halve_successively(range(24), times, always))] < 102.0


def test_a_loser_never_ranks_before_those_who_went_on() -> None:
    class Lucky(NoisyTimes):
        """Everyone is faster in the first stage than ever after."""

        def __call__(self, index: int, calls: int) -> list[float] | None:
            found = super().__call__(index, calls)
            first = self.calls[index] <= STAGES[0].calls
            return [value * (0.5 if first else 1.0) for value in found or []]

    found = halve_successively(range(12), Lucky([100.0 + index for index in range(12)]), always)
    assert best(found) == 0
    finalists = [item.time_us for item in found.values() if item.stage == 2]
    losers = [item.time_us for item in found.values() if item.stage == 0]
    assert min(losers) >= max(finalists)


def test_one_that_fails_late_is_left_out() -> None:
    times = NoisyTimes([100.0, 110.0, 120.0, 130.0])
    times.failing = {0: 10}
    found = halve_successively(range(4), times, always)
    assert 0 not in found
    assert best(found) == 1


def test_when_time_is_up_the_finished_stage_counts() -> None:
    found = halve_successively(
        range(9), NoisyTimes([200.0 - index for index in range(9)]), within(10)
    )
    assert len(found) == 9
    assert {item.stage for item in found.values()} == {0}
    assert best(found) == 8


def test_who_had_no_turn_is_left_out() -> None:
    assert sorted(halve_successively(range(9), NoisyTimes([1.0] * 9), within(4))) == [0, 1, 2, 3]


def test_nothing_to_rank() -> None:
    assert halve_successively([], NoisyTimes([]), always) == {}
