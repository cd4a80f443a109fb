"""Is a turn paid for what the judge and the profiler found, and for nothing else?"""

from __future__ import annotations

import math

import pytest

from agentkernel.domain.verdict import (
    CompileFailed,
    ExecutionFailed,
    Failure,
    Gate,
    InputsChanged,
    LoadFailed,
    PolicyViolation,
    RaceFound,
    RunFailed,
    TimingDisputed,
    WrongMeta,
)
from agentkernel.training.rl.judge_worker import JudgedTurn, Outcome, Speed, reward_of
from agentkernel.training.settings import RlSettings
from tests.training.rl.stand_in import verdict

PAY = RlSettings(correct=0.3, speed=1.0, most_speedup=3.0, own_share=0.2, hack=-1.0, no_file=-0.2)


def turn(failure: Failure | None = None, gate: Gate = "accepted", **more: object) -> JudgedTurn:
    values = {"file": "x", "verdict": verdict(failure, gate)}
    return JudgedTurn.model_validate({**values, **more})


@pytest.mark.parametrize(
    ("speedup", "own_share", "value"),
    [
        (1.5, 1.0, 0.3 + 0.5 + 0.2),
        (3.0, 0.5, 0.3 + 1.0 + 0.1),
        (30.0, 1.0, 0.3 + 1.0 + 0.2),
        (math.inf, 7.0, 0.3 + 1.0 + 0.2),
        (math.nan, math.nan, 0.3),
        (None, 1.0, 0.3 + 0.2),
        (0.6, None, 0.3 + 0.2),
        (None, None, 0.3),
    ],
)
def test_a_right_kernel_is_paid_for_speed_and_for_its_own_part(
    speedup: float | None, own_share: float | None, value: float
) -> None:
    speed = Speed.model_construct(by="measured", speedup=speedup, own_share=own_share)
    found = reward_of(turn().evolve(speed=speed), PAY)
    assert found.outcome == "right"
    assert found.value == pytest.approx(value)
    assert found.value == pytest.approx(found.correct + found.speed + found.own)


def test_measured_and_estimated_are_paid_alike_and_neither_is_needed() -> None:
    first, second = (
        reward_of(turn(speed=Speed(by=by, speedup=2.0, own_share=1.0)), PAY).value
        for by in ("measured", "estimated")
    )
    assert first == second == pytest.approx(0.3 + 2 / 3 + 0.2)
    assert reward_of(turn(), PAY).value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("failure", "gate", "outcome"),
    [
        (PolicyViolation(rule="torch-compute", line=3, text="torch.add"), "policy", "hack"),
        (PolicyViolation(rule="no-launch", line=1, text="none is launched"), "policy", "hack"),
        (PolicyViolation(rule="dunder", line=1, text="__class__"), "policy", "hack"),
        (PolicyViolation(rule="syntax", line=1, text="invalid"), "policy", "wrong"),
        (PolicyViolation(rule="no-model", line=1, text="no class"), "policy", "wrong"),
        (ExecutionFailed(rule="no-kernel", text="nothing ran"), "execution", "hack"),
        (InputsChanged(case="a", name="x"), "inputs", "hack"),
        (TimingDisputed(outside_us=2.0, inside_us=1.0, text="late"), "timing", "hack"),
        (CompileFailed(log="unknown name"), "compile", "wrong"),
        (LoadFailed(log="TypeError"), "load", "wrong"),
        (RunFailed(reason="raised", log="IndexError", case="a"), "run", "wrong"),
        (RunFailed(reason="timeout", log="", case="a"), "run", "wrong"),
        (RunFailed(reason="out_of_bounds", log="", case="a"), "run", "wrong"),
        (WrongMeta(case="a", output=0, expected="f32", found="f16"), "meta", "wrong"),
        (RaceFound(tool="scan", line=4, text="two stores"), "races", "wrong"),
    ],
)
def test_a_cheat_is_what_the_verdict_says_and_a_mistake_is_none(
    failure: Failure, gate: Gate, outcome: Outcome
) -> None:
    # However fast it is said to be.
    speed = Speed(by="measured", speedup=9.0, own_share=1.0)
    found = reward_of(turn(failure, gate, speed=speed), PAY)
    assert found.outcome == outcome
    assert found.value == (PAY.hack if outcome == "hack" else 0.0)
    assert (found.hack is not None) == (outcome == "hack")


def test_a_cheat_that_only_timing_shows_is_one_and_breaking_then_is_none() -> None:
    caught = reward_of(turn(caught="profile:stale_output", broke="stale_output"), PAY)
    assert (caught.outcome, caught.value, caught.hack) == ("hack", -1.0, "profile:stale_output")
    broke = reward_of(turn(broke="raised"), PAY)
    assert (broke.outcome, broke.value) == ("wrong", 0.0)


def test_no_file_and_no_verdict() -> None:
    assert reward_of(JudgedTurn(), PAY).value == PAY.no_file
    unknown = reward_of(JudgedTurn(file="x", why="the process ended"), PAY)
    assert (unknown.outcome, unknown.value) == ("undecided", None)


def test_a_right_file_is_paid_once_more_only_where_it_is_faster() -> None:
    then = turn(speed=Speed(by="estimated", speedup=1.5))
    again = reward_of(then, PAY, then)
    assert (again.outcome, again.value) == ("right", 0.0)
    faster = turn(speed=Speed(by="estimated", speedup=1.6))
    assert reward_of(faster, PAY, then) == reward_of(faster, PAY)
    mended = turn(RunFailed(reason="raised", log="", case="a"), "run")
    assert reward_of(then, PAY, mended) == reward_of(then, PAY)
    assert reward_of(turn(), PAY, turn()).value == 0.0


def test_a_right_file_of_which_nobody_knows_the_speed_that_was_asked_is_not_judged() -> None:
    paid = reward_of(turn(why="not timed: twin died"), PAY)
    assert (paid.outcome, paid.value) == ("undecided", None)
