from __future__ import annotations

import pytest

from agentkernel.training.evaluate.evaluation import (
    Interval,
    grouped_interval,
    wilson,
)


def mean_interval(values: list[float], least: float = 0.0) -> Interval | None:
    """Of values that stand alone."""
    return grouped_interval([(value,) for value in values], least=least)


def test_wilson_is_the_published_interval() -> None:
    # 7 of 10: Wilson (1927), as worked out by hand from the formula.
    found = wilson(7, 10)
    assert found.value == 0.7
    assert (found.low, found.high) == pytest.approx((0.3968, 0.8922), abs=1e-4)


def test_none_and_all_leave_room_for_doubt() -> None:
    assert wilson(0, 20).low == 0.0
    assert 0.1 < wilson(0, 20).high < 0.2
    assert wilson(20, 20).high == 1.0
    assert wilson(0, 0).high == 1.0


def test_a_mean_lies_in_its_interval_and_more_values_narrow_it() -> None:
    few = mean_interval([0.0, 1.0, 1.0, 0.0, 1.0])
    many = mean_interval([0.0, 1.0, 1.0, 0.0, 1.0] * 40)
    assert few is not None
    assert many is not None
    assert few.value == many.value == 0.6
    assert few.low < many.low < 0.6 < many.high < few.high
    assert mean_interval([0.0, 1.0, 1.0, 0.0, 1.0]) == few
    assert mean_interval([]) is None


def test_the_same_value_everywhere_is_no_certainty() -> None:
    found = mean_interval([1.0] * 10)
    assert found is not None
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low < 0.75


def test_values_of_one_group_are_no_news_of_each_other() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    alone = mean_interval(values)
    together = grouped_interval([[value] * 9 for value in values])
    apart = mean_interval([value for value in values for _ in range(9)])
    assert alone is not None
    assert together is not None
    assert apart is not None
    assert together == alone
    assert together.high - together.low > 2 * (apart.high - apart.low)
    uneven = grouped_interval([[1.0, 1.0, 1.0], [0.0], []])
    assert uneven is not None
    assert uneven.value == 0.75
    assert grouped_interval([[], []]) is None


def test_a_difference_of_nothing_anywhere_leaves_room_for_one() -> None:
    none = mean_interval([0.0] * 20, least=-1.0)
    assert none is not None
    assert none.low == -none.high == -wilson(0, 20).high
    all_of_it = mean_interval([1.0] * 20, least=-1.0)
    assert all_of_it is not None
    assert (all_of_it.value, all_of_it.high) == (1.0, 1.0)
    assert all_of_it.low == pytest.approx(1 - 2 * wilson(0, 20).high)
    assert wilson(20, 20).low == pytest.approx(1 - wilson(0, 20).high)


def test_a_difference_shows_its_sign() -> None:
    found = Interval(value=0.0421, low=-0.011, high=0.1)
    assert found.signed() == "+0.042 [-0.011, +0.100]"
