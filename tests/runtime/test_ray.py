"""A task whose worker is stuck is given up; one that waits for a worker is not."""

from __future__ import annotations

import importlib.util

import pytest

from agentkernel.runtime.ray import (
    BEGUN_S,
    LOCAL,
    SILENT_S,
    STUCK,
    STUCK_S,
    RayCluster,
    RayTask,
    TaskClock,
    TaskEnded,
)

STOPS = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"
PATIENCE_S = SILENT_S + STUCK_S


def test_only_what_has_begun_may_be_stuck() -> None:
    now, begun = 0.0, set[str]()
    clock = TaskClock(begun.__contains__, lambda: now)
    tasks = [RayTask(key, "judge", str, "", {}, 100.0) for key in ("waits", "works")]
    assert clock.stuck(tasks) == set()
    begun.add("works")
    now = BEGUN_S
    assert clock.stuck(tasks) == set()
    now += 100.0 + PATIENCE_S
    assert clock.stuck(tasks) == set()
    now += 1.0
    assert clock.stuck(tasks) == {"works"}
    clock.forget("works")
    begun.clear()
    assert clock.stuck(tasks) == set()


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="the extra 'ray' is not here")
def test_a_worker_that_is_stopped_is_given_up() -> None:
    """It cannot end itself, and its node lives."""
    cluster = RayCluster(LOCAL, "test", "nothing")
    try:
        cluster.begin(RayTask("stops", "stops", exec, STOPS, {"num_cpus": 1}, 1.0))
        assert not cluster.answered(5.0)
        assert cluster.answered(PATIENCE_S + 60.0)
        assert cluster.ended() == TaskEnded("stops", lost=STUCK, hung=True)
    finally:
        cluster.close()
