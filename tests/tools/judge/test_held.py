"""What a stage held is the most that was seen while it lasted."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agentkernel.tools.judge.memory import Footprint, FreeMemory, MeasuredMemory, MemoryPlan, Stage

GB = 10**9


def plan(*stages: Stage) -> MemoryPlan:
    return MemoryPlan(Footprint(0, 0, 0, 0, 0, 0, 0, 0), stages, "slices", FreeMemory(80 * GB))


def readings() -> Iterator[int]:
    yield 76 * GB
    yield 60 * GB
    while True:
        yield 70 * GB


def test_the_most_of_each_stage_is_noted_beside_the_plan() -> None:
    free = readings()
    asked: list[int] = []

    def ask() -> int:
        asked.append(next(free))
        return asked[-1]

    held = MeasuredMemory(plan(Stage("eager", 21 * GB), Stage("compare", 12 * GB)), ask, 80 * GB)
    with held.stage("eager"):
        while len(asked) < 2:
            time.sleep(0.001)
    with held.stage("compare"):
        pass
    assert held.text == ("eager 20.00 GB of 21.00 GB planned, compare 10.00 GB of 12.00 GB planned")


def test_small_plans_and_devices_that_nobody_asks_are_not_looked_at() -> None:
    def fails() -> int:
        raise AssertionError

    for held in (
        MeasuredMemory(plan(Stage("eager", GB // 2)), fails, 80 * GB),
        MeasuredMemory(plan(Stage("eager", GB)), None, 0),
    ):
        with held.stage("eager"):
            pass
        assert not held.text
