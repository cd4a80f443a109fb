"""Sides are interleaved fairly, and measuring ends when it should."""

from __future__ import annotations

import pytest

from agentkernel.tools.profiler.rounds import (
    Pace,
    Rounds,
    SideFailed,
    calls_per_block,
    measure_rounds,
)
from agentkernel.tools.speedup import paired_ratio
from tests.tools.profiler.simulated_gpu import SimulatedClockwork, SimulatedSide

PACE = Pace(seconds=2.5)


def comparison(
    clockwork: SimulatedClockwork, pace: Pace = PACE, *, noise: float = 0.02, drift: float = 0.0
) -> tuple[Rounds, list[SimulatedSide]]:
    sides = [
        SimulatedSide(name, us, clockwork, noise, drift)
        for name, us in (("candidate", 100.0), ("eager", 250.0), ("compile", 120.0))
    ]
    found = measure_rounds(sides, clockwork, pace)
    assert isinstance(found, Rounds)
    return found, sides


def test_quiet_sides_need_the_fewest_rounds() -> None:
    found, _ = comparison(SimulatedClockwork(), noise=0.005)
    assert len(found.kept) == PACE.min_rounds
    assert paired_ratio(found.medians("eager"), found.medians("candidate")).value == pytest.approx(
        2.5, rel=0.01
    )


def test_noisy_sides_go_on_until_the_ratio_is_known_or_time_is_up() -> None:
    clockwork = SimulatedClockwork()
    found, _ = comparison(clockwork, noise=1.5)
    assert len(found.kept) > PACE.min_rounds
    assert clockwork.time_s < PACE.seconds + 0.2


def test_few_rough_rounds_get_up_to_four_times_the_time() -> None:
    """Long blocks: a handful of rounds fit into the usual time."""
    long = PACE.evolve(block_ms=120.0, max_calls=10_000)
    rough, known, shorter = SimulatedClockwork(), SimulatedClockwork(), SimulatedClockwork()
    many, _ = comparison(rough, long, noise=8.0)
    few, _ = comparison(known, long, noise=0.15)
    some, _ = comparison(shorter, long.evolve(seconds=1.25), noise=8.0)
    assert len(few.kept) < long.min_rounds
    assert known.time_s < long.seconds + 1.0, "a round takes 0.4 s"
    assert len(many.kept) > len(few.kept)
    assert len(many.kept) == long.max_rounds // 2 or rough.time_s > 4 * long.seconds
    assert len(some.kept) < len(many.kept)
    assert shorter.time_s < 4 * 1.25 + 1.0


def test_a_gpu_that_slows_down_all_the_time_does_not_move_the_ratio() -> None:
    clockwork = SimulatedClockwork()
    found, _ = comparison(clockwork, noise=0.01, drift=1.0)
    value = paired_ratio(found.medians("eager"), found.medians("candidate")).value
    assert value == pytest.approx(2.5, rel=0.03)
    assert found.medians("eager")[-1] > 1.2 * found.medians("eager")[0]


def test_a_throttled_round_is_set_aside_and_counted() -> None:
    clockwork = SimulatedClockwork(spells=[(0.05, 0.12, ("hw_thermal_slowdown",), 900)])
    found, _ = comparison(clockwork, noise=0.005)
    assert found.discarded
    assert len(found.kept) == PACE.min_rounds


def test_a_power_cap_alone_spoils_nothing() -> None:
    clockwork = SimulatedClockwork(spells=[(0.0, 100.0, ("sw_power_cap",), 1700)])
    found, _ = comparison(clockwork, noise=0.005)
    assert not found.discarded


def test_a_power_cap_that_slows_one_side_spoils_the_round() -> None:
    clockwork = SimulatedClockwork(spells=[(0.05, 0.06, ("sw_power_cap",), 1500)])
    found, _ = comparison(clockwork, noise=0.005)
    assert len(found.discarded) == 1


def test_throttled_throughout_ends_without_a_kept_round() -> None:
    clockwork = SimulatedClockwork(spells=[(0.0, 1e9, ("hw_power_brake_slowdown",), 300)])
    found, _ = comparison(clockwork)
    assert not found.kept
    assert len(found.discarded) <= PACE.max_rounds


def test_a_side_that_hangs_ends_the_measurement() -> None:
    clockwork = SimulatedClockwork()
    sides = [
        SimulatedSide("candidate", 100.0, clockwork, dies_after=3),
        SimulatedSide("eager", 100.0, clockwork),
    ]
    found = measure_rounds(sides, clockwork, PACE)
    assert found == SideFailed(side="candidate", reason="timeout", log="no answer within 60 s")


def test_slow_calls_end_near_the_time_budget() -> None:
    clockwork = SimulatedClockwork()
    sides = [SimulatedSide(name, 300_000.0, clockwork) for name in ("candidate", "eager")]
    found = measure_rounds(sides, clockwork, PACE)
    assert isinstance(found, Rounds)
    assert 1 <= len(found.kept) <= 6
    assert clockwork.time_s <= 4 * PACE.seconds + 3


def test_the_order_of_the_sides_changes_from_round_to_round() -> None:
    orders: list[str] = []

    class Noting(SimulatedSide):
        def block(self, calls: int) -> tuple[float, ...] | SideFailed:
            orders.append(self.name)
            return super().block(calls)

    clockwork = SimulatedClockwork()
    sides = [Noting(name, 100.0, clockwork, 0.001) for name in ("a", "b", "c")]
    measure_rounds(sides, clockwork, PACE)
    rounds = {tuple(orders[begin : begin + 3]) for begin in range(3, len(orders) - 2, 3)}
    assert len(rounds) > 2
    assert all(sorted(item) == ["a", "b", "c"] for item in rounds)


@pytest.mark.parametrize(
    ("call_us", "expected"), [(1.0, 100), (100.0, 66), (5_000.0, 3), (20_000.0, 1)]
)
def test_calls_fill_a_block(call_us: float, expected: int) -> None:
    assert calls_per_block(call_us, PACE) == expected


@pytest.mark.quick(2)
@pytest.mark.parametrize("noise", [0.005, 0.05, 1.5])
def test_a_fourth_side_makes_a_profile_no_more_than_a_third_longer(noise: float) -> None:
    def length_s(names: tuple[str, ...], seed: int) -> float:
        clockwork = SimulatedClockwork()
        sides = [SimulatedSide(name, 150.0, clockwork, noise) for name in names]
        assert isinstance(measure_rounds(sides, clockwork, PACE, seed), Rounds)
        return clockwork.time_s

    three = ("candidate", "eager", "compile")
    before = sum(length_s(three, seed) for seed in range(4))
    after = sum(length_s((*three, "max-autotune"), seed) for seed in range(4))
    assert after <= before * 4 / 3 * 1.02
