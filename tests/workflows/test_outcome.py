from __future__ import annotations

import pytest

from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.profile import Ratio
from agentkernel.workflows.outcome import (
    Baselines,
    Result,
    best_attempt,
    decide_outcome,
    goals_met,
    safe_to_hand_over,
)
from fakes import attempt, measurement, mismatch


def ratio(value: float, half: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value - half, high=value + half)


def timed(
    eager: float, compiled: float | None = None, half: float = 0.01, **rest: float
) -> Attempt:
    against = ratio(compiled, half) if compiled is not None else None
    return attempt(measurement(ratio(eager, half), against, **rest))  # type: ignore[arg-type]


FAST, EQUAL, SLOW = timed(2.0, 1.5), timed(1.5, 1.05), timed(1.5, 0.9)
TABLE = [
    ("fast", (FAST,), Goals(), "met", True),
    ("goal against eager alone", (SLOW,), Goals(baseline="eager"), "kept_compiled", False),
    ("goal against compile", (timed(1.1, 2.0),), Goals(baseline="compile"), "met", True),
    ("short of the goal", (EQUAL,), Goals(), "improved", True),
    ("slower than compile", (SLOW,), Goals(), "kept_compiled", False),
    ("slower than eager", (timed(0.9, 1.5),), Goals(), "kept_original", False),
    ("slower than eager, no compile", (timed(0.9),), Goals(), "kept_original", False),
    ("faster than eager, no compile", (timed(1.5),), Goals(), "met", True),
    ("too noisy", (timed(1.5, 1.05, half=0.1),), Goals(), "kept_compiled", False),
    ("exactly level", (timed(1.5, 1.0, half=0.0),), Goals(), "kept_compiled", False),
    (
        "within one percent, surely not slower",
        (timed(1.5, 1.005, half=0.004),),
        Goals(),
        "improved",
        True,
    ),
    ("a little more", (timed(1.5, 1.02, half=0.01),), Goals(), "improved", True),
    (
        "level, less memory wanted",
        (timed(1.5, 1.005, half=0.004),),
        Goals(objective="memory"),
        "improved",
        True,
    ),
    (
        "too much memory",
        (timed(2.0, 1.5, peak=9000),),
        Goals(max_memory_bytes=8000),
        "kept_compiled",
        False,
    ),
    ("memory within", (timed(2.0, 1.5, peak=7000),), Goals(max_memory_bytes=8000), "met", True),
    ("nothing measured", (attempt(),), Goals(), "verified", True),
    ("not profiled", (attempt(profiled=False),), Goals(), "verified", True),
    ("does not fit the target", (attempt(fits=False),), Goals(), "kept_original", False),
    ("wrong", (attempt(failure=mismatch()),), Goals(), "kept_original", False),
    ("none", (), Goals(), "kept_original", False),
    ("wrong, then fast", (attempt(name="w", failure=mismatch()), FAST), Goals(), "met", True),
]


@pytest.mark.parametrize(
    ("history", "goals", "status", "handed"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_status(history: tuple[Attempt, ...], goals: Goals, status: str, handed: bool) -> None:
    outcome = decide_outcome(history, goals, nothing="no template covers it")
    assert (outcome.status, outcome.handed_over) == (status, handed)
    assert outcome.reason
    if handed:
        assert outcome.best is not None


@pytest.mark.parametrize(
    ("value", "half", "words"),
    [
        (1.0016, 0.0021, "not distinguishable from torch.compile"),
        (1.05, 0.1, "too noisy to call"),
        (0.9, 0.01, "slower than the faster baseline"),
    ],
)
def test_a_tie_noise_and_a_loss_are_told_apart(value: float, half: float, words: str) -> None:
    outcome = decide_outcome((timed(1.5, value, half=half),), Goals(), nothing="")
    assert outcome.status == "kept_compiled"
    assert words in outcome.reason


def test_the_faster_measured_baseline_is_named_where_nothing_was_drafted() -> None:
    def status(baselines: Baselines | None) -> str:
        return decide_outcome((), Goals(), nothing="no template", baselines=baselines).status

    assert status(None) == "kept_original"
    assert status(Baselines(eager_us=10.0, compiled_us=None)) == "kept_original"
    assert status(Baselines(eager_us=10.0, compiled_us=12.0)) == "kept_original"
    assert status(Baselines(eager_us=10.0, compiled_us=8.0)) == "kept_compiled"
    assert decide_outcome((), Goals(), nothing="no template").reason == "no template"


def test_a_crash_without_a_baseline_is_a_failure() -> None:
    outcome = decide_outcome((), Goals(), nothing="", crash="eager itself raised")
    assert (outcome.status, outcome.reason) == ("failed", "eager itself raised")


def two_shapes(first: float, second: float) -> Attempt:
    return attempt(
        measurement(ratio(first), ratio(first), shapes="a"),
        measurement(ratio(second), ratio(second), shapes="b"),
    )


def test_every_shape_set_counts() -> None:
    assert safe_to_hand_over(two_shapes(1.5, 1.1))
    assert not safe_to_hand_over(two_shapes(1.5, 0.95)), "no shapes may be measurably slower"
    assert not safe_to_hand_over(two_shapes(0.95, 1.5)), "the primary shapes must not be slower"
    assert not safe_to_hand_over(two_shapes(1.1, 0.5)), "nor the geometric mean"
    assert goals_met(two_shapes(1.3, 1.3), Goals())
    assert not goals_met(two_shapes(1.5, 0.8), Goals())


def test_the_interval_decides_not_the_value() -> None:
    assert goals_met(timed(1.25, 1.25, half=0.04), Goals())
    assert not goals_met(timed(1.25, 1.25, half=0.06), Goals())


def test_the_objective_changes_which_is_best() -> None:
    quick = attempt(measurement(candidate_us=5.0, peak=4000, energy_mj=4.0), name="quick")
    lean = attempt(measurement(candidate_us=6.0, peak=1000, energy_mj=5.0), name="lean")
    cool = attempt(measurement(candidate_us=7.0, peak=3000, energy_mj=2.0), name="cool")
    history = (quick, lean, cool)

    def name(goals: Goals) -> str:
        best = best_attempt(history, goals)
        return best.candidate.source if best else ""

    assert name(Goals()) == "quick"
    assert name(Goals(objective="memory")) == "lean"
    assert name(Goals(objective="energy")) == "cool"
    assert name(Goals(max_memory_bytes=2000)) == "lean"


def test_a_safe_candidate_goes_before_a_quicker_unsafe_one() -> None:
    unsafe = attempt(measurement(ratio(1.5), ratio(0.99), candidate_us=1.0), name="unsafe")
    safe = attempt(measurement(ratio(1.5), ratio(1.1), candidate_us=9.0), name="safe")
    best = best_attempt((unsafe, safe), Goals())
    assert best is not None
    assert best.candidate.source == "safe"


@pytest.mark.parametrize(
    ("status", "interrupted", "code"),
    [
        ("met", False, 0),
        ("improved", False, 0),
        ("verified", False, 0),
        ("kept_original", False, 3),
        ("kept_compiled", False, 3),
        ("failed", False, 1),
        ("verified", True, 130),
    ],
)
def test_exit_codes(status: str, interrupted: bool, code: int) -> None:
    result = Result.model_validate(
        {
            "status": status,
            "interrupted": interrupted,
            "reason": "r",
            "run": "x",
            "measured": False,
            "candidate": None,
            "candidate_sha256": None,
            "certificate": None,
            "report": None,
            "problem": "p",
            "target": "h100-sxm",
        }
    )
    assert result.exit_code == code
