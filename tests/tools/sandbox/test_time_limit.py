"""Whatever waits knows how long the run may still go on."""

from __future__ import annotations

import math

import pytest

from agentkernel.domain.errors import TimeIsUp
from agentkernel.tools.sandbox.session import limited_time, require_time, search_seconds, time_left


def test_without_a_run_there_is_no_limit() -> None:
    require_time()
    assert time_left() == math.inf
    assert search_seconds(60.0) == 60.0


def test_a_search_leaves_time_for_the_judge() -> None:
    with limited_time(lambda: 30.0):
        assert search_seconds(60.0) == pytest.approx(10.0)
        with limited_time(lambda: 600.0):
            assert search_seconds(60.0) == 60.0
        assert time_left() == 30.0
    with limited_time(lambda: -1.0):
        assert search_seconds(60.0) == 0.0
        with pytest.raises(TimeIsUp):
            require_time()
    require_time()
