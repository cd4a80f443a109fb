"""Do axes, labels and lineages come out right where the data are odd?"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.nights.budget import budget_bars, price_of_percent
from agentkernel.tools.nights.drawing import TICK_GAP, LogAxis, figure, spread
from agentkernel.tools.nights.lineage import difference, lineages
from agentkernel.tools.nights.roofline import region_plot
from agentkernel.tools.nights.speeds import mean_speedup, speedup
from agentkernel.tools.nights.tables import region_order
from agentkernel.tools.nights.trend import GEOMEAN, trend_of
from agentkernel.tools.nights.wording import span, us
from made_up_nights import history, kernel_sha, kernels, model, night, region, tonight


@given(st.floats(1e-6, 1e6), st.floats(1.05, 1e9), st.floats(100, 900))
def test_ticks_lie_inside_and_apart(low: float, wide: float, length: float) -> None:
    axis = LogAxis(low, low * wide, length)
    places = [axis.place(value) for value in axis.ticks()]
    assert all(0 <= place <= length for place in places)
    assert all(b - a >= TICK_GAP for a, b in itertools.pairwise(places))


@given(st.lists(st.floats(0, 300), min_size=1, max_size=9))
def test_labels_are_spread_in_their_order(places: list[float]) -> None:
    moved = spread(places, 15, 0, 300)
    order = sorted(range(len(places)), key=lambda index: places[index])
    ordered = [moved[index] for index in order]
    assert all(b - a >= 15 - 1e-6 for a, b in itertools.pairwise(ordered))
    assert min(moved) >= -1e-6
    assert max(moved) <= 300 + 1e-6


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.05, "0.05"), (2000.0, "2,000"), (1e7, "1e7"), (1e-4, "1e-4")]
)
def test_tick_labels(value: float, text: str) -> None:
    assert figure(value) == text


def test_lineage_goes_back_over_the_nights() -> None:
    older = [*history()]
    signature = region(0).signature
    first = older[0].model_copy(update={"regions": (region(0, sha256="f" * 64),)})
    chains = lineages([first, *older[1:]], night(regions=(region(0),)))
    assert chains == {signature: ("f" * 64, kernel_sha(0))}
    assert lineages((), night(regions=(region(3),)))[region(3).signature] == tuple(
        item for item in (region(3).parent, region(3).sha256) if item
    )


def test_a_diff_shows_the_changed_lines() -> None:
    lines = difference("a\nb\nc", "a\nB\nc")
    assert [(item.kind, item.text) for item in lines] == [
        ("hunk", "@@ -1,3 +1,3 @@"),
        ("", " a"),
        ("drop", "-b"),
        ("add", "+B"),
        ("", " c"),
    ]


def test_trend_has_the_mean_first_and_no_other_gpu() -> None:
    before = [*history(), night(19, gpu="NVIDIA H100")]
    found = trend_of(before, tonight(), "measured")
    assert found is not None
    assert list(found.nights) == [item.id for item in (*history(), tonight())]
    assert found.left_out == 1
    assert found.changed == (1,)
    assert found.series[0].name == GEOMEAN
    assert found.series[0].values[-1] == mean_speedup(tonight().models, "measured")
    whisper = next(item for item in found.series if item.name == "whisper-tiny")
    assert whisper.values[:2] == (None, None)
    assert trend_of((), tonight(), "measured") is None
    assert trend_of(before, tonight(), "estimated") is None


def test_mean_is_weighted_and_baselines_count_as_one() -> None:
    rows = (model("a", 100.0, 1.2, 1.0), model("b", 100.0, 1.2, 1.5, weight=3.0))
    assert [speedup(row) for row in rows] == [1.0, 1.5]
    assert mean_speedup(rows, "measured") == pytest.approx(1.5**0.75)
    assert mean_speedup(rows, "estimated") is None


def test_dots_lie_at_the_rate_that_was_reached() -> None:
    found = night()
    rows = region_order(found)
    plot = region_plot(found, rows, {}, "measured")
    assert plot is not None
    dot, row = plot.dots[0], rows[0]
    assert row.flops is not None
    assert row.time_us is not None
    assert dot.y == pytest.approx(row.flops / row.time_us / 1e6)
    assert dot.before == pytest.approx(row.flops / row.eager_us / 1e6)
    assert {item.name for item in plot.roofs} == {
        "fp32 67 TFLOP/s",
        "bf16 and fp16 989.5 TFLOP/s",
    }
    assert region_plot(found, rows, {}, "estimated") is None


def test_without_counts_the_plan_of_the_kernel_or_the_bound_serves() -> None:
    rows = [region(number, flops=None, bytes_min=None) for number in (0, 2, 4)]
    found = night(regions=tuple(rows))
    known = region_plot(found, rows, kernels(), "measured")
    unknown = region_plot(found, rows, {}, "measured")
    assert known is not None
    assert unknown is not None
    assert unknown.y_title == "calls a ms"
    assert unknown.dots[0].x == pytest.approx(1e3 / rows[0].bound_us)
    assert unknown.dots[0].y <= unknown.dots[0].x


def test_bars_hold_all_that_was_spent() -> None:
    found = night()
    bars = budget_bars(found)
    assert len(bars) == 13
    assert max(bar.share for bar in bars) == 1
    assert budget_bars(night(regions=())) == ()
    price = price_of_percent(found)
    mean = mean_speedup(found.models, "measured")
    assert price is not None
    assert mean is not None
    assert price == pytest.approx(3402.0 / (100 * (mean - 1)))
    assert price_of_percent(night(models=(model("a", 100.0, 1.2, 1.0),))) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.34, "2.3 s"),
        (42, "42 s"),
        (60, "1 min"),
        (912, "15 min 12 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.5, "0.50 µs"), (99.96, "100 µs"), (1234.0, "1.23 ms")]
)
def test_times(value: float | None, text: str) -> None:
    assert us(value) == text
