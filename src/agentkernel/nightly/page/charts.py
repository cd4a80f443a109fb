"""Charts of a nightly run: regions under the roofline, and speedups over past runs.

The roofline is log-log, arithmetic intensity against rate (Williams, Waterman, Patterson, CACM
52(4), 2009). Regions without a count of operations are drawn by their time against the
roofline's instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.formatting import count, interval, ratio_text, times, us
from agentkernel.domain.nightly import NightlyRun, RegionRow
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Basis, Kernel
from agentkernel.nightly.page.elements import PlotFigure
from agentkernel.nightly.page.figures import (
    caption,
    dtypes_of,
    mean_ratio,
    same_devices,
    speedup_ratio,
)
from agentkernel.tools.charts.chart import Axis, Chart, Limit, Series, Tick, tick_label
from agentkernel.tools.charts.svg import Frame
from agentkernel.tools.roofline.chart import DOT, LEAST_INTENSITY, Roof, roofline_axes
from agentkernel.tools.speedup import half_width
from agentkernel.tools.targets import find_target

WIDE, NARROW = Frame(600, 370), Frame(370, 340, left=50, right=10)
TREND_WIDE = Frame(600, 370, left=44, right=188, bottom=34)
TREND_NARROW = Frame(370, 320, left=42, right=184, bottom=34)
NUMBERED = 9
"""So many points, those of the largest shares, carry their number in the table."""
PEAKS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}
LEGEND = {
    "kernel": "verified kernel",
    "baseline": "baseline kept",
    "eager": "eager",
    "compiled": "torch.compile",
}
GEOMEAN = "geomean"
LABELLED, COLOURS = 8, 8
LINES = 60
"""Models with a line of their own, the heaviest ones; the mean is that of all."""
NIGHTS = 60
"""At most so many nights are drawn, the last ones."""


def roofline_figure(chart: Chart, words: str, *, left_out: int = 0, estimated: bool) -> PlotFigure:
    """A roofline with its legend."""
    used = {series.kind for series in chart.series}
    legend = [item for item in LEGEND.items() if item[0] in used]
    if any(series.before for series in chart.series):
        legend.append(("before", "the same region in eager"))
    note = f"{left_out} could not be drawn." if left_out else ""
    return PlotFigure(chart, words, WIDE, NARROW, tuple(legend), note, estimated)


def region_figure(
    night: NightlyRun, rows: Sequence[RegionRow], kernels: Mapping[str, Kernel], basis: Basis
) -> PlotFigure | None:
    """The regions of one basis, numbered in the order of `rows`; None where there are none."""
    numbered = [(number, row) for number, row in enumerate(rows, 1) if row.basis == basis]
    known = [
        (number, row, work) for number, row in numbered if (work := _work(row, kernels)) is not None
    ]
    timed = [(number, row) for number, row in numbered if row.bound_us > 0]
    if known and 2 * len(known) >= len(numbered):
        dtypes = dtypes_of(row.shapes for _, row, _ in known)
        chart = _by_rate(night.target, dtypes, tuple(_dot(*item) for item in known))
        title = f"Roofline of {len(known)} regions ({basis})"
    elif timed:
        chart = _by_time(tuple(_timed_dot(*item) for item in timed))
        title = f"{len(timed)} regions against their roofline bound ({basis})"
    else:
        return None
    return roofline_figure(
        chart._replace(title=title),
        f"{caption(night, basis)}.",
        left_out=len(numbered) - len(chart.series),
        estimated=basis == "estimated",
    )


def _work(row: RegionRow, kernels: Mapping[str, Kernel]) -> tuple[int, int] | None:
    """FLOPs and least bytes of one call, of the row or of its kernel's plan."""
    if row.flops is not None and row.bytes_min:
        return row.flops, row.bytes_min
    kernel = kernels.get(row.sha256 or "")
    plan = kernel.certificate.plan if kernel is not None else None
    if plan is None or not plan.analysis.bytes_min:
        return None
    return plan.analysis.flops, plan.analysis.bytes_min


def _dot(number: int, row: RegionRow, work: tuple[int, int]) -> Series:
    flops, size = work
    intensity = max(flops / size, LEAST_INTENSITY)
    rate = intensity * size / 1e6
    place = intensity, rate / (row.time_us or row.eager_us)
    before = rate / row.eager_us if row.time_us else None
    return _series(number, row, place, before, f"eager {us(row.eager_us)}")


def _timed_dot(number: int, row: RegionRow) -> Series:
    """Rate as a share of the roof cannot be drawn: calls a millisecond against the roofline's."""
    place = 1e3 / row.bound_us, 1e3 / (row.time_us or row.eager_us)
    before = 1e3 / row.eager_us if row.time_us else None
    return _series(number, row, place, before, f"bound {us(row.bound_us)}")


def _series(
    number: int, row: RegionRow, place: tuple[float, float], before: float | None, beside: str
) -> Series:
    return Series(
        f"{number}. {row.name}: {us(row.time_us or row.eager_us)}, {beside}",
        "kernel" if row.time_us else "baseline",
        (place,),
        radius=DOT,
        before=before,
        label=str(number) if number <= NUMBERED else "",
        href=f"#region-{row.signature}",
    )


def _places(dots: Sequence[Series]) -> Iterator[tuple[float, float]]:
    for dot in dots:
        yield dot.points[0]
        if dot.before:
            yield dot.points[0][0], dot.before


def _by_rate(target: str, dtypes: Sequence[str], dots: tuple[Series, ...]) -> Chart:
    roofs = _roofs(target, dtypes)
    x, y = roofline_axes([*_places(dots)], roofs)
    return Chart("", x, y, dots, tuple(roof.limit(roof.title, x, y) for roof in roofs))


def _by_time(dots: tuple[Series, ...]) -> Chart:
    x, y = roofline_axes([*_places(dots)], ())
    x = x._replace(title="calls per ms at the roofline's bound")
    y = y._replace(title="calls per ms", high=max(y.high, x.high * 1.6))
    ends = max(x.low, y.low), min(x.high, y.high)
    own = Limit("the roofline's own", tuple((end, end) for end in ends))
    return Chart("", x, y, dots, (own,))


def _roofs(target: str, dtypes: Sequence[str]) -> tuple[Roof, ...]:
    """A roof for each peak of the dtypes, of the target's description; none for an unknown one."""
    try:
        found = find_target(target).target
    except AgentKernelError:
        return ()
    copy = found.copy_gb_per_s or found.dram_gb_per_s
    peaks: dict[float, list[str]] = {}
    for key in (PEAKS.get(name, "") for name in dtypes):
        if key in found.peak_tflops:
            peaks.setdefault(found.peak_tflops[key].value, []).append(key)
    return tuple(
        Roof(f"{' and '.join(names)} {tick_label(peak)} TFLOP/s", copy.value, peak)
        for peak, names in sorted(peaks.items())
    )


def trend_figure(
    history: Sequence[NightlyRun], night: NightlyRun, basis: Basis
) -> PlotFigure | None:
    """Speedups over the faster baseline in `night` and those before it, oldest first, on the same
    GPU (estimates: for the same target); None where no model has a figure of that basis, or fewer
    than two nights have. The first line is the geometric mean."""
    before = [item for item in history if item.id != night.id and item.started <= night.started]
    before.sort(key=lambda item: item.started)
    fit = [item for item in before if same_devices(item, night, basis)]
    nights = [*fit, night][-NIGHTS:]
    tables = [{row.name: row for row in item.models if row.basis == basis} for item in nights]
    first = next((place for place, table in enumerate(tables) if table), 0)
    nights, tables = nights[first:], tables[first:]
    names = sorted(tables[-1], key=lambda name: -tables[-1][name].weight)[:LINES]
    lines = [(GEOMEAN, [mean_ratio(table.values(), basis) for table in tables])]
    for name in names:
        ratios = [speedup_ratio(table[name]) if name in table else None for table in tables]
        lines += [(name, ratios)] if any(ratios) else []
    if len(lines) < 2 or len(nights) < 2:
        return None
    known = [ratio.value for _, ratios in lines for ratio in ratios if ratio]
    dates = tuple(Tick(place, item.started[5:10]) for place, item in enumerate(nights))
    base = "the faster of eager and torch.compile" if basis == "measured" else "eager"
    chart = Chart(
        f"Speedup over {base}, night by night ({basis})",
        Axis(0, len(nights) - 1, log=False, marked=dates),
        Axis(min(0.95, *known) / 1.03, max(1.1, *known) * 1.06, unit="×"),
        tuple(_line(number, *line) for number, line in enumerate(lines)),
        base=1,
        changed=tuple(
            place
            for place in range(1, len(nights))
            if nights[place].versions != nights[place - 1].versions
        ),
    )
    notes = ["Bars and ±: the 95% intervals."] if basis == "measured" else []
    notes += ["A dashed line: versions changed before that night."] if chart.changed else []
    if left_out := len(before) - len(fit):
        other = "another GPU" if basis == "measured" else "another target"
        notes.append(f"{count(left_out, 'night')} on {other} left out.")
    words, note = f"{caption(night, basis)}.", " ".join(notes)
    return PlotFigure(
        chart, words, TREND_WIDE, TREND_NARROW, note=note, estimated=basis == "estimated"
    )


def _line(number: int, name: str, ratios: Sequence[Ratio | None]) -> Series:
    """One model's line; the first ones have name and last figure at its end, and the intervals as
    bars."""
    kind = "mean" if number == 0 else f"c{number}" if number <= COLOURS else "rest"
    known = [(place, ratio) for place, ratio in enumerate(ratios) if ratio]
    last = ratios[-1]
    around = f" ±{half_width(last):.1%}" if last and interval(last) else ""
    bars = [(place, item.low, item.high) for place, item in known if 0 < item.low < item.high]
    return Series(
        f"{name}: {', '.join(ratio_text(ratio) for ratio in ratios)}",
        kind,
        tuple((place, ratio.value) for place, ratio in known),
        line=True,
        radius=3,
        label=name if last and number <= LABELLED else "",
        figure=f"{times(last.value)}{around}" if last else "",
        bars=tuple(bars) if number <= LABELLED else (),
    )
