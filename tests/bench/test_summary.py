"""Is a wrong one 0 or left out where it must be, and is no measured figure made up?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.bench.suite import Row, Times
from agentkernel.bench.summary import Level, baseline_figures, summarise
from tests.bench.bench_rows import broken, ratio, row, sample, suite, unmeasured


def level(rows: tuple[Row, ...], name: str = "all") -> Level:
    return next(item for item in summarise("s", rows).levels if item.level == name)


def test_every_level_and_all() -> None:
    summary = summarise("s", suite())
    assert [item.level for item in summary.levels] == ["level1", "level2", "all"]
    assert [item.problems for item in summary.levels] == [3, 2, 5]
    assert (summary.gpus, summary.coders, summary.k) == (("NVIDIA H200",), ("compiler",), 1)


def test_wrong_ones_are_zero_in_fast_p_and_left_out_of_the_mean() -> None:
    eager, compiled, autotune = level(suite()).against
    assert (eager.problems, eager.left_out) == (5, 2)
    assert eager.fast == {
        "0.8": 0.6,
        "1": 0.6,
        "1.2": 0.4,
        "1.5": 0.4,
        "2": 0.2,
        "4": 0.2,
    }
    assert eager.geometric_mean == pytest.approx((2.0 * 1.1 * 5.0) ** (1 / 3))
    assert eager.speedup_at_k == pytest.approx((2.0 + 1.1 + 5.0) / 5)
    assert compiled.geometric_mean == pytest.approx((2.0 * 1.1 * 5.0) ** (1 / 3) / 1.25)
    assert (autotune.problems, autotune.fast, autotune.geometric_mean) == (0, {}, None)


def test_the_answer_counts_a_kept_baseline_as_itself() -> None:
    eager, compiled, _ = level(suite()).against
    assert eager.answer_mean == pytest.approx((2.0 * 1.1 * 1.25 * 5.0) ** 0.25)
    assert compiled.answer_mean == pytest.approx((1.6 * 0.88 * 1.0 * 4.0) ** 0.25)


def test_correct_cost_energy_and_hacks() -> None:
    found = level(suite())
    assert found.correct == found.pass_at_k == pytest.approx(0.6)
    assert (found.broken, found.measured) == (1, 5)
    assert found.kernelbench_correct == 0.5, "the one that was asked, and the one that broke"
    assert found.roofline_at_k == pytest.approx(3 * 0.5 / 5)
    assert found.energy == pytest.approx(2.0)
    assert (found.total_s, found.median_s) == (40.0, 10.0)
    assert found.candidates == pytest.approx(8 / 5)
    assert found.hacks == {"execution:no-kernel": 1}
    assert (found.samples, found.hack_rate) == (4, 0.25)
    assert level(()).hack_rate == 0.0


def test_without_a_gpu_nothing_is_called_measured() -> None:
    found = level(unmeasured())
    assert all((item.problems, item.fast) == (0, {}) for item in found.against)
    assert (found.measured, found.roofline_at_k, found.energy) == (0, None, None)
    assert found.estimated == pytest.approx(2.0)
    assert (found.correct, found.interpreted) == (0.5, 1)


def test_a_fast_candidate_that_is_wrong_is_worth_nothing() -> None:
    found = level((row("level1/a", sample(9.0, correct=False)),))
    eager = found.against[0]
    assert (eager.fast["0.8"], eager.geometric_mean, eager.left_out) == (0.0, None, 1)
    assert (eager.speedup_at_k, found.roofline_at_k) == (0.0, 0.0)


def test_an_answer_below_a_baseline_is_named() -> None:
    kept_eager = sample(correct=False, kept="eager")
    rows = (
        row("level1/slower", sample(1.1)),
        row("level1/level", sample(1.25 * 0.975)),
        row("level1/kept", sample(correct=False)),
        row("level1/kept_the_slower", kept_eager),
        row("level1/rescued", sample(0.5), sample(2.0)),
        broken("level1/broken"),
    )
    assert level(rows).best.below == ("level1/slower", "level1/kept_the_slower")
    assert level(unmeasured()).best.below == ()


def test_max_autotune_counts_like_any_baseline() -> None:
    times = Times(eager_us=100.0, compiled_us=80.0, autotune_us=50.0)
    rows = (
        row("level1/faster", sample(2.2, vs_autotune=ratio(1.1)), times=times),
        row("level1/slower", sample(1.8, vs_autotune=ratio(0.9)), times=times),
        row("level1/kept", sample(correct=False, kept="max-autotune"), times=times),
        row("level1/kept_the_slower", sample(correct=False), times=times),
    )
    assert level(rows).best.below == ("level1/slower", "level1/kept_the_slower")
    autotune = level(rows).against[2]
    assert (autotune.problems, autotune.left_out, autotune.fast["1"]) == (4, 2, 0.25)
    assert autotune.answer_mean == pytest.approx((1.1 * 0.9 * 1.0 * 50 / 80) ** 0.25)


def test_kernelbenchs_rule_where_nobody_asked() -> None:
    assert level((row("level1/a", sample(2.0)), broken("level1/b"))).kernelbench_correct is None


def test_several_samples_are_an_expectation() -> None:
    found = level((row("level1/a", sample(4.0), sample(correct=False)),))
    assert found.correct == 0.5
    assert found.pass_at_k == 1.0
    assert found.against[0].fast["1"] == 0.5
    assert found.against[0].speedup_at_k == pytest.approx(4.0)


def test_a_sample_that_is_missing_is_a_wrong_one() -> None:
    cut = row("level1/a", sample(4.0), planned=2, error="it broke on the way")
    assert level((cut,)).correct == 0.5
    assert level((cut,)).against[0].fast["1"] == 0.5


def test_a_baseline_that_failed_takes_the_problem_out_of_its_own_column_alone() -> None:
    rows = (row("level1/a", sample(2.0), times=Times(eager_us=100.0)), row("level1/b", sample(2.0)))
    eager, compiled, _ = level(rows).against
    assert (eager.problems, compiled.problems) == (2, 1)


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=8), st.integers(0, 4))
def test_more_broken_problems_never_help(speeds: list[float], wrong: int) -> None:
    good = [row(f"level1/{index}", sample(value)) for index, value in enumerate(speeds)]
    bad = [broken(f"level1/x{index}") for index in range(wrong)]
    alone, both = baseline_figures(good, "eager", 1), baseline_figures([*good, *bad], "eager", 1)
    assert all(both.fast[p] <= alone.fast[p] for p in alone.fast)
    assert both.geometric_mean == alone.geometric_mean
    assert both.left_out == wrong


def test_a_sample_without_time_to_judge_is_told_from_a_wrong_one() -> None:
    late = "c1 was drafted; the time limit of 60 s was over before it was judged"
    wrong = sample(correct=False, reason="2 candidates drafted, none accepted")
    rows = (row("level1/a", sample(correct=False, reason=late)), row("level1/b", wrong))
    assert level(rows).out_of_time == 1
