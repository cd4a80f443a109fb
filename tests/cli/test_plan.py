"""The headroom that `plan` tells is one that its own model of a launch allows."""

from __future__ import annotations

import pytest

from agentkernel.cli.plan import headroom, plan_lines
from agentkernel.domain.profile import Estimate
from agentkernel.tools.roofline.model import LAUNCH_US, least_estimate_us
from tests.agents.models.model_cases import analysis

TINY = analysis(roofline="latency", memory_time_us=0.1, compute_time_us=0.03, bound_us=0.1)


def eager(time_us: float) -> Estimate:
    return Estimate(target="h100-sxm", time_us=time_us, bytes_moved=1, flops=1, bound="latency")


def test_no_headroom_is_told_that_one_launch_needs() -> None:
    assert headroom(TINY, eager(6.57)) == pytest.approx(1 - (0.1 + LAUNCH_US) / 6.57)
    assert headroom(TINY, eager(least_estimate_us(TINY))) == 0.0
    assert headroom(TINY, eager(1.0)) == headroom(TINY, eager(0.0)) == 0.0


def test_the_lines_say_what_a_launch_adds() -> None:
    lines = plan_lines(TINY, eager(6.57), 6.57)
    assert "roofline     0.1 us (estimated), 2.1 us with one launch" in lines
    assert "eager        6.57 us (estimated), headroom at least 68%" in lines
