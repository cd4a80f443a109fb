"""Are the figures what their papers define?"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.speedup import (
    THRESHOLDS,
    best_at_k,
    fast_p,
    geometric_mean,
    mean,
    median,
    pass_at_k,
)

VALUES = st.lists(st.floats(0, 100), min_size=1, max_size=7)
POSITIVE = st.lists(st.floats(0.01, 100), min_size=1, max_size=20)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_share_of_draws_with_a_correct_one(marks: list[bool], k: int) -> None:
    found = pass_at_k(len(marks), sum(marks), k)
    if k > len(marks):
        assert found is None
        return
    draws = [any(draw) for draw in itertools.combinations(marks, k)]
    assert found == pytest.approx(sum(draws) / len(draws))


@given(VALUES, st.integers(1, 7))
def test_best_at_k_is_the_mean_over_draws_of_the_largest(values: list[float], k: int) -> None:
    found = best_at_k(values, k)
    if k > len(values):
        assert found is None
        return
    draws = [max(draw) for draw in itertools.combinations(values, k)]
    assert found == pytest.approx(math.fsum(draws) / len(draws))


@given(VALUES)
def test_best_at_k_grows_from_the_mean_to_the_largest(values: list[float]) -> None:
    found = [best_at_k(values, k) or 0.0 for k in range(1, len(values) + 1)]
    assert found[0] == pytest.approx(math.fsum(values) / len(values))
    assert found[-1] == pytest.approx(max(values))
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(found))


@given(VALUES, st.integers(0, 5))
def test_fast_p_falls_with_p_and_with_wrong_ones(values: list[float], wrong: int) -> None:
    shares = [fast_p(values, p) or 0.0 for p in THRESHOLDS]
    assert all(a >= b for a, b in itertools.pairwise(shares))
    assert (fast_p(values + [0.0] * wrong, 1.0) or 0.0) <= shares[1]


def test_fast_p_is_strict_and_knows_nothing_from_nothing() -> None:
    assert fast_p([1.0, 1.1, 0.0, 3.0], 1.0) == 0.5
    assert fast_p([], 1.0) is None


@given(POSITIVE, st.floats(0.1, 10), st.integers(0, 3))
def test_the_geometric_mean_scales_and_leaves_zeros_out(
    values: list[float], factor: float, zeros: int
) -> None:
    found = geometric_mean(values) or 0.0
    assert min(values) * 0.999 <= found <= max(values) * 1.001
    assert geometric_mean([value * factor for value in values]) == pytest.approx(found * factor)
    assert geometric_mean([1 / value for value in values]) == pytest.approx(1 / found)
    assert geometric_mean(values + [0.0] * zeros) == pytest.approx(found)


def test_means_of_nothing_are_unknown() -> None:
    assert (geometric_mean([]), geometric_mean([0.0]), mean([]), median([])) == (None,) * 4
    assert (median([3.0, 1.0, 2.0]), median([4.0, 1.0])) == (2.0, 2.5)
