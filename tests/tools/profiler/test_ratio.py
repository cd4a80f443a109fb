"""A ratio's interval is honest, and shrugs off one bad round."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.speedup import half_width, paired_ratio, small_sample_factor, summarise


def noisy_pairs(
    ratio: float, rounds: int, noise: float, seed: int
) -> tuple[list[float], list[float]]:
    """Blocks whose machine drifts, each side with its own noise around the true ratio."""
    generator = random.Random(seed)
    drift = [1.0 + 0.2 * generator.random() for _ in range(rounds)]
    candidate = [100.0 * slow * math.exp(generator.gauss(0, noise)) for slow in drift]
    baseline = [100.0 * ratio * slow * math.exp(generator.gauss(0, noise)) for slow in drift]
    return baseline, candidate


def test_the_true_ratio_lies_in_nearly_every_interval() -> None:
    hits = 0
    for seed in range(200):
        found = paired_ratio(*noisy_pairs(1.3, 10, 0.02, seed), resamples=400)
        hits += found.low <= 1.3 <= found.high
    assert 180 <= hits <= 199


def test_drift_that_both_sides_share_cancels() -> None:
    found = paired_ratio(*noisy_pairs(2.0, 12, 0.0, 3))
    assert found.value == pytest.approx(2.0, rel=1e-9)
    assert half_width(found) < 1e-9


def test_one_hiccup_in_ten_rounds_moves_nothing() -> None:
    baseline, candidate = noisy_pairs(1.0, 10, 0.002, 5)
    candidate[4] *= 3.0
    assert paired_ratio(baseline, candidate).value == pytest.approx(1.0, abs=0.005)


def test_more_rounds_narrow_the_interval() -> None:
    few = half_width(paired_ratio(*noisy_pairs(1.1, 8, 0.02, 1)))
    many = half_width(paired_ratio(*noisy_pairs(1.1, 64, 0.02, 1)))
    assert many < few / 2


def test_one_round_says_nothing_about_the_spread() -> None:
    found = paired_ratio([2.0], [1.0])
    assert (found.value, found.low, found.high) == (pytest.approx(2.0), 0.0, math.inf)


def test_the_same_seed_gives_the_same_interval() -> None:
    pairs = noisy_pairs(1.5, 9, 0.05, 2)
    assert paired_ratio(*pairs, seed=4) == paired_ratio(*pairs, seed=4)
    assert paired_ratio(*pairs, seed=4) != paired_ratio(*pairs, seed=5)


def test_unpaired_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="2 baseline and 1 candidate"):
        paired_ratio([1.0, 2.0], [1.0])


def test_the_series_for_t_meets_the_tables() -> None:
    """t(0.975) = 2.262 for 9 degrees of freedom (any table of Student's t)."""
    assert small_sample_factor(10) == pytest.approx(2.262 / 1.960 * math.sqrt(10 / 9), rel=2e-3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), min_size=2, max_size=20),
)
def test_the_value_lies_in_its_interval_and_turns_with_the_sides(
    pairs: list[tuple[float, float]],
) -> None:
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    found = paired_ratio(left, right, resamples=100)
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
    assert paired_ratio(right, left, resamples=100).value == pytest.approx(1 / found.value)


def test_a_summary_holds_the_percentiles_of_the_single_calls() -> None:
    found = summarise([float(value) for value in range(1, 102)], do_bench_us=50.0)
    assert (found.p10_us, found.median_us, found.p90_us) == (11.0, 51.0, 91.0)
    assert (found.samples, found.do_bench_us) == (101, 50.0)
