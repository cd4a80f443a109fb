from __future__ import annotations

import pytest

from agentkernel.workflows.training.intervals import mean_interval, wilson


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
