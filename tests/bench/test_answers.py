"""Is an answer compared with the fastest baseline, and is no row counted that nobody measured?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.bench.answers import answer_over_best, best_figures, fastest, over_best
from agentkernel.bench.report import stages_text
from agentkernel.bench.suite import Times
from agentkernel.runtime.stages import StageTime
from tests.bench.bench_rows import broken, ratio, row, sample, suite, unmeasured

THREE = Times(eager_us=100.0, compiled_us=80.0, autotune_us=50.0)


def test_the_fastest_baseline_is_the_one_to_beat() -> None:
    good = row("level1/a", sample(2.2, vs_autotune=ratio(1.1)), times=THREE)
    assert fastest(good) == "max-autotune"
    assert over_best(good) == ratio(1.1)
    assert answer_over_best(good) == pytest.approx(1.1)
    assert fastest(good.evolve(times=Times(eager_us=10.0, compiled_us=80.0))) == "eager"


def test_a_kept_baseline_is_one_where_it_is_the_fastest() -> None:
    kept = row("level1/a", sample(correct=False, kept="max-autotune"), times=THREE)
    assert (answer_over_best(kept), over_best(kept)) == (1.0, None)
    slower = row("level1/b", sample(correct=False, kept="torch.compile"), times=THREE)
    assert answer_over_best(slower) == pytest.approx(50 / 80)


def test_a_kept_baseline_leaves_the_candidate_its_figure() -> None:
    slow = sample(1.8, kept="max-autotune", vs_autotune=ratio(0.9), own_share=0.5)
    found = best_figures([row("level1/a", slow, times=THREE)])
    assert (found.answer_mean, found.candidate_mean) == (1.0, pytest.approx(0.9))
    assert (found.own, found.shares, found.below) == (1, 1, ())


def test_the_figures_of_a_level() -> None:
    rows = (
        row("level1/fast", sample(2.6, vs_autotune=ratio(1.3), own_share=0.09), times=THREE),
        row("level1/rough", sample(2.0, vs_autotune=ratio(1.0, 0.2), own_share=1.0), times=THREE),
        row("level1/slow", sample(1.8, vs_autotune=ratio(0.9)), times=THREE),
        row("level1/kept", sample(correct=False, kept="max-autotune"), times=THREE),
        broken("level1/broken"),
    )
    found = best_figures(rows)
    assert (found.rows, found.answers, found.candidates) == (5, 4, 3)
    assert found.answer_mean == pytest.approx((1.3 * 1.0 * 0.9 * 1.0) ** 0.25)
    assert found.candidate_mean == pytest.approx((1.3 * 1.0 * 0.9) ** (1 / 3))
    assert (found.fast, found.narrow, found.own, found.shares) == (1, 2, 1, 2)
    assert found.below == ("level1/slow",)


def test_nothing_that_nobody_measured_counts() -> None:
    found = best_figures(unmeasured())
    assert (found.rows, found.answers, found.answer_mean, found.below) == (0, 0, None, ())


@given(st.floats(10, 1000), st.floats(10, 1000), st.floats(10, 1000), st.floats(0.1, 10))
def test_over_the_best_is_the_least_of_the_three(
    eager: float, compiled: float, tuned: float, ours: float
) -> None:
    times = Times(eager_us=eager, compiled_us=compiled, autotune_us=tuned)
    ratios = [ratio(value / ours) for value in (eager, compiled, tuned)]
    one = sample(1.0, vs_eager=ratios[0], vs_compile=ratios[1], vs_autotune=ratios[2])
    found = over_best(row("level1/a", one, times=times))
    assert found is not None
    assert found.value == min(item.value for item in ratios)


def test_stages_in_words() -> None:
    times = (
        StageTime(stage="judge", seconds=11.2),
        StageTime(stage="decide", seconds=0.1),
        StageTime(stage="search", seconds=24.4),
        StageTime(stage="max-autotune", seconds=60.9, overlapped=True),
    )
    assert stages_text(times) == "search 24, judge 11 (max-autotune 61)"
    assert stages_text(()) == ""
    assert best_figures(suite()).answers == 4
