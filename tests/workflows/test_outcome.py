from __future__ import annotations

import pytest

from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.profile import Measurement, Ratio
from agentkernel.domain.settings import Baseline
from agentkernel.domain.verdict import RunFailed
from agentkernel.workflows.outcome import (
    Baselines,
    Result,
    best_attempt,
    decide_outcome,
    goals_met,
    safe_to_hand_over,
    side_effect_note,
)
from agentkernel.workflows.results import _with_figures
from tests.workflows.fakes import attempt, measurement, mismatch


def ratio(value: float, half: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value - half, high=value + half)


def timed(
    eager: float, compiled: float | None = None, half: float = 0.01, **rest: float
) -> Attempt:
    against = ratio(compiled, half) if compiled is not None else None
    return attempt(measurement(ratio(eager, half), against, **rest))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nothing", "status"),
    [
        ("no schedule of it runs: run: ModuleNotFoundError: No module named 'x'", "failed"),
        ("no schedule of it runs: load: TypeError: a Config", "failed"),
        (
            "the compiler coder has no template for this constructor: it needs 'import yaml'",
            "failed",
        ),
        ("no schedule of it runs: the_kernel does not fit: over the limits", "kept_original"),
        ("the compiler coder has no template for aten.sort", "kept_original"),
    ],
)
def test_what_could_not_be_tried_is_no_verdict_on_speed(nothing: str, status: str) -> None:
    found = decide_outcome((), Goals(), nothing=nothing)
    assert (found.status, found.handed_over) == (status, False)
    assert nothing in found.reason
    wrong = attempt(failure=mismatch())
    assert decide_outcome((wrong,), Goals(), nothing=nothing).status == "kept_original"


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
    ("within one percent, surely not slower", (timed(1.5, 1.005, half=0.004),), Goals(),
        "improved", True),
    ("a little more", (timed(1.5, 1.02, half=0.01),), Goals(), "improved", True),
    ("level, less memory wanted", (timed(1.5, 1.005, half=0.004),), Goals(objective="memory"),
        "improved", True),
    ("too much memory", (timed(2.0, 1.5, peak=9000),), Goals(max_memory_bytes=8000),
        "kept_compiled", False),
    ("memory within", (timed(2.0, 1.5, peak=7000),), Goals(max_memory_bytes=8000), "met", True),
    ("nothing measured", (attempt(),), Goals(), "verified", True),
    ("not profiled", (attempt(profiled=False),), Goals(), "verified", True),
    ("does not fit the target", (attempt(fits=False),), Goals(), "kept_original", False),
    ("wrong", (attempt(failure=mismatch()),), Goals(), "kept_original", False),
    ("none", (), Goals(), "kept_original", False),
    ("wrong, then fast", (attempt(name="w", failure=mismatch()), FAST), Goals(), "met", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("history", "goals", "status", "handed"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_status(history: tuple[Attempt, ...], goals: Goals, status: str, handed: bool) -> None:
    outcome = decide_outcome(history, goals, nothing="no template covers it")
    assert (outcome.status, outcome.handed_over) == (status, handed)
    assert outcome.reason
    if handed:
        assert outcome.best is not None


def test_a_side_effect_that_the_drop_in_leaves_out_is_said() -> None:
    found = attempt()
    notes = ("left out: odd sizes", side_effect_note("aux"))
    noted = found.evolve(verdict=found.verdict.evolve(notes=notes))
    outcome = decide_outcome((noted,), Goals(), nothing="")
    assert outcome.reason.endswith(
        "; the drop-in does not set the attribute 'aux', as the original does"
    )
    assert "odd sizes" not in outcome.reason


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
    third = Baselines(eager_us=10.0, compiled_us=8.0, autotuned_us=7.0)
    tuned = decide_outcome((), Goals(), nothing="no template", baselines=third)
    assert (tuned.status, tuned.baseline) == ("kept_compiled", "max-autotune")
    assert tuned.reason.startswith("no template; torch.compile's max-autotune is the fastest")
    assert status(third.evolve(autotuned_us=11.0)) == "kept_compiled"
    assert status(Baselines(eager_us=6.0, compiled_us=8.0, autotuned_us=7.0)) == "kept_original"
    assert decide_outcome((), Goals(), nothing="no template").reason == "no template"


@pytest.mark.parametrize(
    ("searched", "status"),
    [(None, "kept_compiled"), (8.5, "kept_compiled"), (7.7, "kept_compiled"), (7.5, "verified")],
)
def test_what_the_gpu_had_no_time_to_time_must_not_be_slower(
    searched: float | None, status: str
) -> None:
    right = attempt(profiled=False)
    candidate = right.candidate.evolve(searched_us=searched)
    history = (right.evolve(candidate=candidate),)
    baselines = Baselines(eager_us=10.0, compiled_us=8.0)
    found = decide_outcome(history, Goals(), nothing="", baselines=baselines)
    assert (found.status, found.handed_over) == (status, status == "verified")
    assert "its speed could not be found out" in found.reason
    assert ("in the search, where the fastest baseline takes 8.0 us" in found.reason) == bool(
        searched
    )


def estimated(time_us: float, *, blocks: int = 8192, target: str = "h100-sxm") -> Attempt:
    """A right candidate that nobody measured; eager is estimated at 5 us."""
    found = attempt()
    report, assumed = found.profile.report, found.profile.estimate
    kernel = report.kernels[0].evolve(grid=(blocks, 1, 1))
    update = {
        "target": target,
        "report": report.evolve(kernels=(kernel,)),
        "estimate": assumed.evolve(time_us=time_us),
    }
    return found.evolve(profile=found.profile.evolve(**update))


@pytest.mark.parametrize(
    ("time_us", "blocks", "target", "status"),
    [
        (7.5, 8192, "h100-sxm", "kept_original"),
        (5.08, 8192, "h100-sxm", "verified"),
        (5.4, 131, "h100-sxm", "verified"),
        (7.5, 131, "h100-sxm", "kept_original"),
        (7.5, 132, "h100-sxm", "kept_original"),
        (7.5, 4, "some-gpu", "kept_original"),
    ],
)
def test_what_is_estimated_slower_is_not_handed_over(
    time_us: float, blocks: int, target: str, status: str
) -> None:
    found = decide_outcome((estimated(time_us, blocks=blocks, target=target),), Goals(), nothing="")
    assert (found.status, found.handed_over) == (status, status == "verified")
    if status == "kept_original":
        assert found.reason == "estimated slower than eager: 0.67x; nothing was measured"
        assert (found.baseline, found.best is None) == ("eager", False)


def test_what_earlier_runs_were_refused_for_is_not_this_runs_reason() -> None:
    lent = attempt(name="w", failure=mismatch())
    lent = lent.evolve(candidate=lent.candidate.evolve(round=0))
    assert decide_outcome((lent,), Goals(), nothing="").reason == "no candidate was drafted"
    own = attempt(name="v", judged=False, profiled=False)
    assert decide_outcome((lent, own), Goals(), nothing="").reason == "nothing was judged"
    both = decide_outcome((lent, attempt(name="v", failure=mismatch())), Goals(), nothing="")
    assert both.reason.startswith("1 candidate drafted, none accepted")


def test_a_long_reason_ends_in_a_whole_word() -> None:
    words = f"ValueError: {' '.join(['refused'] * 80)}"
    failure = RunFailed(reason="raised", log=words, case="uniform, seed 1, x float32[1, 1]")
    refused = attempt(name="v", failure=failure)
    reason = decide_outcome((refused,), Goals(), nothing="").reason
    assert "uniform, seed 1, x float32[1, 1]: ValueError: refused" in reason
    assert reason.endswith(" refused ...")
    assert len(reason) < 500


def test_a_crash_without_a_baseline_is_a_failure() -> None:
    outcome = decide_outcome((), Goals(), nothing="", crash="eager itself raised")
    assert (outcome.status, outcome.reason) == ("failed", "eager itself raised")


def three(
    eager: float, compiled: float | None, autotuned: float | None, error: str | None = None
) -> Measurement:
    """A candidate at 10 us with these speedups over the baselines."""
    found = measurement(ratio(eager), ratio(compiled) if compiled is not None else None)
    if autotuned is None:
        return found.evolve(autotune_error=error)
    time = found.eager.evolve(median_us=10.0 * autotuned)
    return found.evolve(autotuned=time, vs_autotune=ratio(autotuned))


SPEEDS = (0.8, 0.995, 1.005, 1.05, 1.3, 2.0)


@pytest.mark.parametrize("eager", SPEEDS)
@pytest.mark.parametrize("compiled", [None, *SPEEDS])
@pytest.mark.parametrize("autotuned", [None, *SPEEDS])
@pytest.mark.parametrize("baseline", ["best", "eager", "compile"])
def test_never_below_any_baseline_that_has_a_time(
    eager: float, compiled: float | None, autotuned: float | None, baseline: Baseline
) -> None:
    """Whatever the goal is held against: handed over means surely faster than all of them, and
    otherwise the fastest of them is named."""
    found = three(eager, compiled, autotuned)
    outcome = decide_outcome((attempt(found),), Goals(baseline=baseline), nothing="")
    known = {"eager": eager, "torch.compile": compiled, "max-autotune": autotuned}
    speeds = {name: value for name, value in known.items() if value is not None}
    assert outcome.handed_over == all(value - 0.01 > 1.0 for value in speeds.values())
    if outcome.handed_over:
        assert outcome.baseline is None
        return
    assert outcome.baseline is not None
    assert speeds[outcome.baseline] == min(speeds.values())
    expected = "kept_original" if outcome.baseline == "eager" else "kept_compiled"
    assert outcome.status == expected
    assert ("max-autotune is the fastest" in outcome.reason) == (outcome.baseline == "max-autotune")


PLAIN = Result(
    status="improved",
    reason="",
    run="r",
    measured=True,
    candidate=None,
    candidate_sha256=None,
    certificate=None,
    report=None,
    problem="p",
    target="h100",
)


def test_the_results_figures_have_the_third_baseline() -> None:
    found = _with_figures(PLAIN, attempt(three(2.0, 1.5, 1.25)), None)
    assert (found.autotuned_us, found.speedup_vs_autotune) == (12.5, 1.25)
    assert found.speedup_ci95 == (1.24, 1.26), "the interval of the nearest baseline"
    without = _with_figures(PLAIN, attempt(three(2.0, 1.5, None)), None)
    assert (without.autotuned_us, without.speedup_vs_autotune) == (None, None)


def test_where_it_was_not_measured_nothing_is_said_of_it() -> None:
    old = decide_outcome((attempt(three(2.0, 1.5, None)),), Goals(), nothing="")
    assert "max-autotune" not in old.reason
    out = three(2.0, 1.5, None, error="left out on request")
    assert "max-autotune" not in decide_outcome((attempt(out),), Goals(), nothing="").reason
    failed = three(2.0, 1.5, None, error="timeout: too long")
    assert "max-autotune failed" in decide_outcome((attempt(failed),), Goals(), nothing="").reason
    timed_too = decide_outcome((attempt(three(2.0, 1.5, 1.3)),), Goals(), nothing="")
    assert "1.300x [1.290, 1.310] against max-autotune" in timed_too.reason


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


def test_a_loosened_baseline_is_named_with_its_switch() -> None:
    loose = measurement(ratio(1.5)).evolve(baselines_matmul="high")
    found = decide_outcome((attempt(loose),), Goals(precision="tf32"), nothing="")
    assert "all with float32_matmul_precision 'high'" in found.reason
