"""Tests of a group run in one process, which makes their fixtures once."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("told_by_name")
def test_the_scheduler_is_told_the_group(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("not distributed by groups")
    assert request.node.nodeid.endswith("@told_by_name")
