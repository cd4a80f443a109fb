"""Do the stages of a run add up to its wall time, whatever is opened inside of what?"""

from __future__ import annotations

import contextvars
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.runtime import stages
from agentkernel.runtime.stages import OTHER, StageClock, StageTime, process_age_s


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def by_name(clock: StageClock) -> dict[str, float]:
    return {item.stage: pytest.approx(item.seconds) for item in clock.times()}


def test_a_moment_counts_for_the_innermost_stage() -> None:
    hands = Hands()
    clock = StageClock(hands)
    hands.at += 1
    with clock.stage("draft"):
        hands.at += 2
        with clock.stage("search"):
            hands.at += 4
        hands.at += 8
    hands.at += 16
    assert by_name(clock) == {"draft": 10, "search": 4, OTHER: 17}
    assert clock.times()[-1].stage == OTHER, "what has no name comes last"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 2))))
def test_stages_add_up_to_the_wall_time(steps: list[tuple[str, int, int]]) -> None:
    hands = Hands()
    clock = StageClock(hands)
    clock.add("load", 3.0)
    for name, seconds, depth in steps:
        with clock.stage(name):
            hands.at += seconds
            for _ in range(depth):
                with clock.stage("inner"):
                    hands.at += seconds
    clock.add_overlapped("compile", 1000.0)
    own = sum(item.seconds for item in clock.times() if not item.overlapped)
    assert own == pytest.approx(clock.wall_s())


def test_an_error_closes_its_stage() -> None:
    hands = Hands()
    clock = StageClock(hands)

    def judge() -> None:
        with clock.stage("judge"):
            hands.at += 1
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        judge()
    hands.at += 2
    assert by_name(clock) == {"judge": 1, OTHER: 2}


def test_what_is_beside_the_run_is_told_apart() -> None:
    with stages.recording() as clock:
        stages.overlapped("max-autotune", 7.0)
        seen = contextvars.copy_context()

        def beside() -> None:
            with stages.stage("estimate"):
                time.sleep(0.01)

        thread = threading.Thread(target=seen.run, args=(beside,))
        thread.start()
        thread.join()
    beside_it = [item for item in clock.times() if item.overlapped]
    assert beside_it[0] == StageTime(stage="max-autotune", seconds=7.0, overlapped=True)
    assert (beside_it[1].stage, beside_it[1].seconds >= 0.01) == ("estimate", True)
    assert {item.stage for item in clock.times() if not item.overlapped} == {OTHER}


def test_one_recording_inside_another_is_the_same() -> None:
    with stages.recording() as outer:
        with stages.recording() as inner:
            assert inner is outer
        with stages.stage("plan"):
            pass
    assert "plan" in by_name(outer)
    with stages.stage("plan"):
        stages.overlapped("plan", 1.0)
    with stages.recording() as fresh:
        assert fresh is not outer


def test_a_process_is_older_than_this_module() -> None:
    first = process_age_s()
    time.sleep(0.03)
    assert 0 < first < process_age_s()


def test_what_is_being_done_is_told_to_any_thread_and_forgotten_with_its_stage() -> None:
    heard: list[str] = []
    with stages.recording(StageClock()) as clock:
        assert clock.doing == ""
        with stages.stage("draft"):
            stages.at("fused")
            assert clock.doing == "draft: fused"
            with stages.stage("search"):
                stages.at("compiling 24 schedules")
                other = threading.Thread(target=lambda: heard.append(clock.doing))
                other.start()
                other.join()
            assert clock.doing == "draft: fused"
        assert clock.doing == ""
    assert heard == ["fused; search: compiling 24 schedules"]
    stages.at("nobody records")
