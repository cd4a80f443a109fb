"""Do figures, plots and lineages of a night come out right where the data are odd?"""

from __future__ import annotations

import math
import re

import pytest

from agentkernel.domain.formatting import span, us
from agentkernel.domain.nightly import LostJob
from agentkernel.domain.region import RegionUse
from agentkernel.nightly.page.charts import GEOMEAN, NARROW, WIDE, region_figure, trend_figure
from agentkernel.nightly.page.elements import lineages, source_lines
from agentkernel.nightly.page.figures import (
    MergedRegions,
    lost_text,
    mean_ratio,
    mean_speedup,
    merged_regions,
    model_costs,
    seconds_per_percent,
    speedup,
    speedup_ratio,
)
from agentkernel.nightly.page.pages import budget_bars
from agentkernel.nightly.page.tables import region_order
from agentkernel.tools.charts.svg import Frame, chart_svg
from agentkernel.tools.speedup import Z_95, Z_99
from tests.nightly.page.runs import (
    estimated_model,
    history,
    kernel_sha,
    kernels,
    model,
    night,
    region,
    tonight,
)


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_the_largest_shares_carry_their_numbers(frame: Frame) -> None:
    found = night()
    plot = region_figure(found, region_order(found), kernels(), "measured")
    assert plot is not None
    drawn = chart_svg(plot.chart, frame, "wide")
    numbers = re.findall(r'class="number"[^>]*>(\d+)<', drawn)
    assert numbers == [str(number) for number in range(1, 10)]
    assert drawn.count("<title>") == len(plot.chart.series) + 1, "the others say it on a hover"


def test_lineage_goes_back_over_the_nights() -> None:
    older = [*history()]
    signature = region(0).signature
    first = older[0].evolve(regions=(region(0, sha256="f" * 64),))
    chains = lineages([first, *older[1:]], night(regions=(region(0),)))
    assert chains == {signature: ("f" * 64, kernel_sha(0))}
    assert lineages((), night(regions=(region(3),)))[region(3).signature] == tuple(
        item for item in (region(3).parent, region(3).sha256) if item
    )


def test_a_diff_shows_the_changed_lines() -> None:
    lines = source_lines("a\nb\nc", "a\nB\nc")
    assert [(item.kind, item.text) for item in lines] == [
        ("hunk", "@@ -1,3 +1,3 @@"),
        ("", " a"),
        ("drop", "-b"),
        ("add", "+B"),
        ("", " c"),
    ]


def test_trend_has_the_mean_first_and_no_other_gpu() -> None:
    before = [*history(), night(19, gpu="NVIDIA H100")]
    found = trend_figure(before, tonight(), "measured")
    assert found is not None
    dates = [tick.text for tick in found.chart.x.marked or ()]
    assert dates == [item.started[5:10] for item in (*history(), tonight())]
    assert "1 night on another GPU left out." in found.note
    assert found.chart.changed == (1,)
    mean = found.chart.series[0]
    assert mean.label == GEOMEAN
    assert mean.points[-1][1] == mean_speedup(tonight().models, "measured")
    whisper = next(item for item in found.chart.series if item.label == "whisper-tiny")
    assert [place for place, _ in whisper.points] == [2, 3]
    assert trend_figure((), tonight(), "measured") is None
    assert trend_figure(before, tonight(), "estimated") is None


def test_mean_is_weighted_and_baselines_count_as_one() -> None:
    rows = (model("a", 100.0, 1.2, 1.0), model("b", 100.0, 1.2, 1.5, weight=3.0))
    assert [speedup(row) for row in rows] == [1.0, 1.5]
    assert mean_speedup(rows, "measured") == pytest.approx(1.5**0.75)
    assert mean_speedup(rows, "estimated") is None


def test_the_mean_has_an_interval_and_the_trend_draws_them() -> None:
    rows = (model("a", 100.0, 1.2, 1.0), model("b", 100.0, 1.2, 1.5, weight=3.0))
    mean, own = mean_ratio(rows, "measured"), speedup_ratio(rows[1])
    assert mean is not None
    assert own is not None
    wanted = 0.75 * math.log(own.high99 / own.low99) / 2 / Z_99 * Z_95
    assert math.log(mean.high / mean.value) == pytest.approx(wanted, rel=1e-6)
    exact = mean_ratio(rows[:1], "measured")
    assert exact is not None
    assert (exact.low, exact.value, exact.high) == (1.0, 1.0, 1.0)
    found = trend_figure(history(), tonight(), "measured")
    assert found is not None
    bert = next(item for item in found.chart.series if item.label == "bert-base")
    assert [place for place, _, _ in bert.bars] == [place for place, _ in bert.points]
    assert all(
        low < value < high
        for (_, low, high), (_, value) in zip(bert.bars, bert.points, strict=True)
    )
    assert chart_svg(found.chart, found.wide, "wide").count('class="bar ') > 10
    assert "(1.30 to 1.32)" in bert.name
    assert bert.figure == "1.31× ±1.0%"


def test_dots_lie_at_the_rate_that_was_reached() -> None:
    found = night()
    rows = region_order(found)
    plot = region_figure(found, rows, {}, "measured")
    assert plot is not None
    dot, row = plot.chart.series[0], rows[0]
    assert row.flops is not None
    assert row.time_us is not None
    assert dot.points[0][1] == pytest.approx(row.flops / row.time_us / 1e6)
    assert dot.before == pytest.approx(row.flops / row.eager_us / 1e6)
    assert {item.name for item in plot.chart.limits} == {
        "fp32 67 TFLOP/s",
        "bf16 and fp16 989.5 TFLOP/s",
    }
    assert region_figure(found, rows, {}, "estimated") is None


def test_without_counts_the_plan_of_the_kernel_or_the_bound_serves() -> None:
    rows = [region(number, flops=None, bytes_min=None) for number in (0, 2, 4)]
    found = night(regions=tuple(rows))
    assert region_figure(found, rows, kernels(), "measured") is not None
    unknown = region_figure(found, rows, {}, "measured")
    assert unknown is not None
    assert unknown.chart.y.title == "calls per ms"
    ((x, y),) = unknown.chart.series[0].points
    assert x == pytest.approx(1e3 / rows[0].bound_us)
    assert y <= x


def test_bars_hold_all_that_was_spent() -> None:
    found = night()
    bars = budget_bars(found)
    assert len(bars) == 13
    assert max(bar.share for bar in bars) == 1
    assert budget_bars(night(regions=())) == ()
    price = seconds_per_percent(found)
    mean = mean_speedup(found.models, "measured")
    assert price is not None
    assert mean is not None
    assert price == pytest.approx(3402.0 / (100 * (mean - 1)))
    assert seconds_per_percent(night(models=(model("a", 100.0, 1.2, 1.0),))) is None


def test_each_model_has_its_own_price() -> None:
    shared = region(
        0,
        spent_s=100.0,
        uses=(
            RegionUse(model="a", path="x", share=0.03),
            RegionUse(model="b", path="x", share=0.005),
            RegionUse(model="b", path="y", share=0.005),
        ),
    )
    alone = region(1, spent_s=50.0, uses=(RegionUse(model="b", path="z", calls=3),))
    rows = (
        model("a", 100.0, 1.2, 1.25),
        model("b", 100.0, 1.2, 1.0),
        model("c", 100.0, 1.2, 1.005),
        model("d", 100.0, 1.2, 1.5, error="boom"),
        estimated_model("e", 100.0, 1.5),
    )
    costs = model_costs(night(models=rows, regions=(shared, alone)))
    assert list(costs) == ["a", "b", "c", "e"]
    assert (costs["a"].jobs_s, costs["a"].percent_s) == (75.0, 3.0)
    assert (costs["b"].jobs_s, costs["b"].percent_s, costs["b"].text) == (75.0, None, "no gain")
    assert not costs["c"].gained, "half a percent is within the noise"
    assert (costs["e"].basis, costs["e"].gained, costs["e"].text) == ("estimated", True, "0 s")


def test_a_region_without_shares_is_split_by_calls() -> None:
    uses = (RegionUse(model="a", path="x", calls=3), RegionUse(model="b", path="x"))
    rows = (model("a", 100.0, 1.2, 1.25), model("b", 100.0, 1.2, 1.0))
    costs = model_costs(night(models=rows, regions=(region(0, spent_s=100.0, uses=uses),)))
    assert [item.jobs_s for item in costs.values()] == [75.0, 25.0]


def test_merged_regions_are_counted_within_and_across() -> None:
    uses = [
        tuple(RegionUse(model=name, path=str(place)) for place, name in enumerate(names))
        for names in ("aaab", "c", "ab")
    ]
    rows = tuple(region(number, uses=item) for number, item in enumerate(uses))
    found = merged_regions(night(regions=rows))
    assert found == MergedRegions(regions=3, submodules=7, within=2, across=2)
    assert found.words == (
        "3 regions stand for 7 submodules: 57% of them need no kernel of their own, "
        "29% shared within a model, 29% across models."
    )
    one = merged_regions(night(regions=(region(0, uses=uses[1]),)))
    assert one.words == "1 region stands for 1 submodule; none is shared."
    assert merged_regions(night(regions=())).words == ""


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


ENDED = "the night was ended in the middle of it"


def test_one_that_was_lost_reads_as_it_was_kept() -> None:
    assert lost_text([LostJob(job="cut a", why="killed", again=2)]) == [
        ("cut a", "killed (2 times in all)")
    ]


def test_a_night_that_was_killed_ten_times_is_one_line_with_a_count() -> None:
    lost = [LostJob(job=f"kernel {number % 5}", why=ENDED) for number in range(19)]
    assert lost_text([*lost, LostJob(job="cut a", why="killed")]) == [
        ("kernel 0, kernel 1, kernel 2 and 2 more", f"{ENDED} (19 times in all)"),
        ("cut a", "killed"),
    ]
