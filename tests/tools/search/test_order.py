"""Rank correlation of cost and time, and how soon the best is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.domain.candidate import TrialResult
from agentkernel.tools.search.order import orders, rank_correlation, reached


def trial(cost: float | None, time: float | None, segment: str = "norm a") -> TrialResult:
    return TrialResult(
        label="", sha256="", schedule={}, time_us=time, estimated_us=cost, segment=segment
    )


def test_correlation_is_of_ranks() -> None:
    assert rank_correlation([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1.0)
    assert rank_correlation([4, 3, 2, 1], [1, 10, 100, 1000]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0.0
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12))
def test_correlation_is_pearsons_of_mean_ranks(pairs: list[tuple[int, int]]) -> None:
    left, right = zip(*pairs, strict=True)
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert rank_correlation(left, right) == 0.0
        return
    ranks = [[np.mean(np.flatnonzero(np.sort(side) == x)) for x in side] for side in (left, right)]
    assert rank_correlation(left, right) == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_the_best_is_reached_once_it_is_among_the_cheapest() -> None:
    items = [trial(float(cost), 20.0 - cost) for cost in range(10)]
    assert reached(items, 24) == 1.0
    assert reached(items, 8) == pytest.approx(11 / 13)


def test_patterns_have_their_own_order() -> None:
    good = [trial(float(index), float(index + 1)) for index in range(6)]
    bad = [trial(float(index), 9.0 - index, "gemm b") for index in range(6)]
    few = [trial(1.0, 1.0, "softmax c")]
    whole = [trial(1.0, 1.0, "") for _ in range(9)]
    unmeasured = [trial(1.0, None, "gemm b")]
    gemm, norm = orders([*good, *bad, *few, *whole, *unmeasured])
    assert (gemm.pattern, gemm.segments, gemm.measured) == ("gemm", 1, 6)
    assert (gemm.correlation, norm.correlation) == (pytest.approx(-1.0), pytest.approx(1.0))
    assert norm.reached == (1.0, 1.0, 1.0)
