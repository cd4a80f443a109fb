"""Charts of a nightly run: regions under the roofline, and speedups over past runs.

The roofline is log-log, arithmetic intensity against rate (Williams, Waterman, Patterson, CACM
52(4), 2009). Regions without a count of operations are drawn by their time against the
roofline's instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.nightly import NightlyRun, RegionRow
from agentkernel.domain.region import Basis, Kernel
from agentkernel.domain.target import Target
from agentkernel.nightly.page.elements import (
    LETTER,
    Box,
    Frame,
    Label,
    LogAxis,
    Mark,
    boxes_along,
    place_labels,
    spread_apart,
    square_around,
    svg_line,
    svg_open,
    svg_path,
    svg_text,
    tick_label,
)
from agentkernel.nightly.page.figures import (
    dtypes_of,
    mean_speedup,
    same_devices,
    speedup,
    times,
    us,
)
from agentkernel.tools.roofline.chart import LEAST_INTENSITY
from agentkernel.tools.targets import find_target

WIDE, NARROW = Frame(600, 370), Frame(370, 340, left=50, right=10)
DOT = 5.0
"""A dot's radius in pixels."""
NUMBERED = 9
"""So many points, those of the largest shares, carry their number in the table."""
PEAKS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}


class Dot(NamedTuple):
    """One thing at `x`, now at `y`; at `before` as eager. `name` is its colour's class."""

    label: str
    x: float
    y: float
    before: float | None
    name: str
    href: str = ""
    number: int = 0


class Roof(NamedTuple):
    """A limit as corners (x, y), and its name."""

    name: str
    corners: tuple[tuple[float, float], ...]


class Plot(NamedTuple):
    """Dots under roofs. `left_out`: how many could not be drawn."""

    title: str
    x_title: str
    y_title: str
    dots: tuple[Dot, ...]
    roofs: tuple[Roof, ...]
    estimated: bool
    left_out: int = 0


def region_plot(
    night: NightlyRun, rows: Sequence[RegionRow], kernels: Mapping[str, Kernel], basis: Basis
) -> Plot | None:
    """The regions of one basis, numbered in the order of `rows`; None where there are none."""
    numbered = [(number, row) for number, row in enumerate(rows, 1) if row.basis == basis]
    counted = [(number, row, _work(row, kernels)) for number, row in numbered]
    known = [item for item in counted if item[2] is not None]
    if 2 * len(known) < len(counted) or not known:
        return _by_time([item for item in numbered if item[1].bound_us > 0], len(numbered), basis)
    dots = tuple(_dot(number, row, work) for number, row, work in known if work is not None)
    return Plot(
        title=f"Roofline of {len(dots)} regions ({basis})",
        x_title="FLOP per byte",
        y_title="TFLOP/s",
        dots=dots,
        roofs=_roofs(night.target, dtypes_of(row.shapes for _, row, _ in known), dots),
        estimated=basis == "estimated",
        left_out=len(counted) - len(dots),
    )


def plot_svg(plot: Plot, frame: Frame, name: str) -> str:
    """The plot in one size."""
    xs = [dot.x for dot in plot.dots]
    ys = [value for dot in plot.dots for value in (dot.y, dot.before) if value]
    tops = [corner[1] for roof in plot.roofs for corner in roof.corners[1:]]
    ridges = [roof.corners[1][0] for roof in plot.roofs if len(roof.corners) > 2]
    across = LogAxis(min([*xs, *ridges]) / 2, max([*xs, *ridges]) * 3, frame.across)
    up = LogAxis(min(ys) / 2, max([*ys, *tops]) * 1.6, frame.up)

    def place(x: float, y: float) -> tuple[float, float]:
        return frame.left + across.place(x), frame.height - frame.bottom - up.place(y)

    parts = [svg_open(frame, name, plot.title), *_grid(frame, across, up, plot)]
    taken: list[Box] = []
    for roof in plot.roofs:
        drawn = _roof_line(roof, frame, across, up)
        label = (frame.width - frame.right - 4, drawn[-1][1] - 6)
        parts += [svg_path(drawn, "roof"), svg_text(*label, roof.name, "roofname", "end")]
        wide = LETTER * len(roof.name)
        taken += [*boxes_along(drawn), Box(label[0] - wide, label[1] - 11, label[0], label[1] + 3)]
    for dot in plot.dots[::-1]:  # what takes the most time lies on top
        here = place(dot.x, dot.y)
        was = place(dot.x, dot.before) if dot.before is not None else None
        parts += _marks(dot, here, was)
        taken += [
            square_around(*here, DOT + 1),
            *((square_around(*was, 4), *boxes_along((was, here))) if was else ()),
        ]
    marks = [Mark(*place(dot.x, dot.y), str(dot.number)) for dot in numbered(plot)]
    inside = Box(
        frame.left, frame.top, frame.width - frame.right, frame.height - float(frame.bottom)
    )
    parts += [part for label in place_labels(marks, taken, inside) for part in _label(label)]
    return "".join([*parts, "</svg>"])


def numbered(plot: Plot) -> list[Dot]:
    """The dots that are to carry their number, the largest share first."""
    return [dot for dot in plot.dots if 0 < dot.number <= NUMBERED]


def best_us(row: RegionRow) -> float:
    """Microseconds of what is in use: the kernel where there is one, else eager."""
    return row.time_us if row.time_us else row.eager_us


def _work(row: RegionRow, kernels: Mapping[str, Kernel]) -> tuple[int, int] | None:
    """FLOPs and least bytes of one call, of the row or of its kernel's plan."""
    if row.flops is not None and row.bytes_min:
        return row.flops, row.bytes_min
    kernel = kernels.get(row.sha256 or "")
    plan = kernel.certificate.plan if kernel is not None else None
    if plan is None or not plan.analysis.bytes_min:
        return None
    return plan.analysis.flops, plan.analysis.bytes_min


def _dot(number: int, row: RegionRow, work: tuple[int, int]) -> Dot:
    flops, size = work
    intensity = max(flops / size, LEAST_INTENSITY)
    rate = intensity * size / 1e6
    return Dot(
        label=f"{number}. {row.name}: {us(best_us(row))}, eager {us(row.eager_us)}",
        x=intensity,
        y=rate / best_us(row),
        before=rate / row.eager_us if row.time_us else None,
        name="kernel" if row.time_us else "baseline",
        href=f"#region-{row.signature}",
        number=number,
    )


def _by_time(rows: Sequence[tuple[int, RegionRow]], total: int, basis: Basis) -> Plot | None:
    """Rate as a share of the roof cannot be drawn: calls a second against the roofline's."""
    if not rows:
        return None
    dots = tuple(
        Dot(
            label=f"{number}. {row.name}: {us(best_us(row))}, bound {us(row.bound_us)}",
            x=1e3 / row.bound_us,
            y=1e3 / best_us(row),
            before=1e3 / row.eager_us if row.time_us else None,
            name="kernel" if row.time_us else "baseline",
            href=f"#region-{row.signature}",
            number=number,
        )
        for number, row in rows
    )
    ends = min(dot.x for dot in dots) / 2, max(dot.x for dot in dots) * 3
    roof = Roof("the roofline's own", tuple((end, end) for end in ends))
    title = f"{len(dots)} regions against their roofline bound ({basis})"
    across, up = "calls a ms at the roofline's bound", "calls a ms"
    return Plot(title, across, up, dots, (roof,), basis == "estimated", total - len(rows))


def _roofs(target: str, dtypes: Sequence[str], dots: Sequence[Dot]) -> tuple[Roof, ...]:
    """Slope and ceiling for each dtype, of the target's description; none for an unknown one."""
    try:
        found: Target = find_target(target).target
    except AgentKernelError:
        return ()
    copy = found.copy_gb_per_s or found.dram_gb_per_s
    slope = copy.value / 1e3
    peaks: dict[float, list[str]] = {}
    for name in dtypes:
        key = PEAKS.get(name, "")
        if key in found.peak_tflops:
            peaks.setdefault(found.peak_tflops[key].value, []).append(key)
    low = min(dot.x for dot in dots) / 2
    return tuple(
        Roof(
            f"{' and '.join(names)} {tick_label(peak)} TFLOP/s",
            ((low, low * slope), (peak / slope, peak), (max(peak / slope, low) * 1e4, peak)),
        )
        for peak, names in sorted(peaks.items())
    )


def _grid(frame: Frame, across: LogAxis, up: LogAxis, plot: Plot) -> list[str]:
    low, left, right = frame.height - frame.bottom, frame.left, frame.width - frame.right
    parts = []
    for value in across.ticks(LETTER):
        x = left + across.place(value)
        parts += [svg_line(x, frame.top, x, low, "grid"), svg_text(x, low + 16, tick_label(value))]
    for value in up.ticks():
        y = low - up.place(value)
        parts += [
            svg_line(left, y, right, y, "grid"),
            svg_text(left - 6, y + 4, tick_label(value), anchor="end"),
        ]
    middle = frame.top + frame.up / 2
    parts.append(svg_text(left + frame.across / 2, low + 35, plot.x_title, "title"))
    parts.append(
        f'<text class="title" transform="translate(12 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(plot.y_title)}</text>'
    )
    return parts


def _roof_line(roof: Roof, frame: Frame, across: LogAxis, up: LogAxis) -> list[tuple[float, float]]:
    """Slope from where it enters the drawing, ceiling to its right end, in pixels."""
    low = frame.height - frame.bottom
    first_x, first_y = roof.corners[0]
    rate = first_y / first_x
    enter = max(across.low, up.low / rate)
    corners = [(enter, enter * rate), *roof.corners[1:]]
    if len(roof.corners) == 2:
        corners = [(enter, enter), (min(across.high, up.high), min(across.high, up.high))]
    return [(frame.left + across.place(x), low - up.place(y)) for x, y in corners]


def _label(label: Label) -> list[str]:
    """The number, with a line from its point where it stands off."""
    mark, box = label.mark, label.box
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    away = math.hypot(x - mark.x, y - mark.y)
    edge = DOT / away if away else 0.0
    start = mark.x + edge * (x - mark.x), mark.y + edge * (y - mark.y)
    leader = [svg_line(*start, x, y, "leader")] if label.led else []
    return [*leader, svg_text(x, box.bottom, mark.text, "number")]


def _marks(dot: Dot, here: tuple[float, float], was: tuple[float, float] | None) -> list[str]:
    x, y = here
    parts = [f'<a href="{dot.href}">' if dot.href else "<g>"]
    parts.append(f"<title>{escape(dot.label)}</title>")
    if was is not None:
        parts += [
            svg_line(x, was[1], x, y, "step"),
            f'<circle class="before" cx="{x:.1f}" cy="{was[1]:.1f}" r="3"/>',
        ]
    parts.append(f'<circle class="dot {dot.name}" cx="{x:.1f}" cy="{y:.1f}" r="{DOT:g}"/>')
    return [*parts, "</a>" if dot.href else "</g>"]


TREND_WIDE = Frame(600, 370, left=44, right=188, bottom=34)
TREND_NARROW = Frame(370, 320, left=42, right=146, bottom=34)
GEOMEAN = "geomean"
LABELLED, COLOURS = 8, 8
LABEL_GAP = 15.0
LINES = 60
"""Models with a line of their own, the heaviest ones; the mean is that of all."""
LETTERS = {"wide": 18, "narrow": 12}
NIGHTS = 60
"""At most so many nights are drawn, the last ones."""


class Series(NamedTuple):
    """A model's speedup in each night of the trend; None where it has none."""

    name: str
    values: tuple[float | None, ...]


class Trend(NamedTuple):
    """Speedups over the faster of eager and torch.compile, oldest night first. `changed` are the
    places of nights whose versions differ from those of the night before."""

    basis: Basis
    nights: tuple[str, ...]
    stamps: tuple[str, ...]
    series: tuple[Series, ...]
    changed: tuple[int, ...]
    left_out: int = 0
    """Nights on another GPU, or for another target."""


def trend_of(history: Sequence[NightlyRun], night: NightlyRun, basis: Basis) -> Trend | None:
    """The nights before `night` and itself, those on the same GPU (estimates: for the same target);
    None where no model has a figure of that basis, or fewer than two nights have. The first series
    is the geometric mean."""
    before = [item for item in history if item.id != night.id and item.started <= night.started]
    before.sort(key=lambda item: item.started)
    fit = [item for item in before if same_devices(item, night, basis)]
    nights = [*fit, night][-NIGHTS:]
    tables = [{row.name: row for row in item.models if row.basis == basis} for item in nights]
    first = next((place for place, table in enumerate(tables) if table), 0)
    nights, tables = nights[first:], tables[first:]
    names = sorted(tables[-1], key=lambda name: -tables[-1][name].weight)[:LINES]
    series = [
        Series(name, tuple(speedup(table[name]) if name in table else None for table in tables))
        for name in names
    ]
    series = [item for item in series if any(item.values)]
    if not series or len(nights) < 2:
        return None
    mean = Series(GEOMEAN, tuple(mean_speedup(table.values(), basis) for table in tables))
    changed = [
        place
        for place in range(1, len(nights))
        if nights[place].versions != nights[place - 1].versions
    ]
    return Trend(
        basis,
        tuple(item.id for item in nights),
        tuple(item.started for item in nights),
        (mean, *series),
        tuple(changed),
        len(before) - len(fit),
    )


def trend_svg(trend: Trend, frame: Frame, name: str) -> str:
    """One line a model, the geometric mean above them all."""
    values = [value for series in trend.series for value in series.values if value]
    up = LogAxis(min(0.95, *values) / 1.03, max(1.1, *values) * 1.06, frame.up)
    low = frame.height - frame.bottom
    step = frame.across / (len(trend.nights) - 1)

    def x(place: int) -> float:
        return frame.left + place * step

    def y(value: float) -> float:
        return low - up.place(value)

    title = f"Speedup over the faster baseline, night by night ({trend.basis})"
    parts = [svg_open(frame, name, title)]
    for value in up.ticks():
        kind = "one" if value == 1 else "grid"
        parts += [
            svg_line(frame.left, y(value), frame.width - frame.right, y(value), kind),
            svg_text(frame.left - 6, y(value) + 4, f"{tick_label(value)}×", anchor="end"),
        ]
    for place in trend.changed:
        parts.append(svg_line(x(place), frame.top, x(place), low, "changed"))
    parts += _days(trend, x, low, step)
    for number, series in reversed(list(enumerate(trend.series))):
        colour = _colour(number)
        points = [(x(place), y(value)) for place, value in enumerate(series.values) if value]
        parts.append(f"<g><title>{_told(series)}</title>{svg_path(points, f'series {colour}')}")
        parts += [
            f'<circle class="point {colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points
        ]
        parts.append("</g>")
    parts += _labels(trend, frame, y, LETTERS.get(name, 18))
    return "".join([*parts, "</svg>"])


def _days(trend: Trend, x: Callable[[int], float], low: float, step: float) -> list[str]:
    """The dates, as many as there is room for, the last one always."""
    every = max(1, math.ceil(46 / step))
    last = len(trend.stamps) - 1
    return [
        svg_text(x(place), low + 18, trend.stamps[place][5:10]) for place in range(last, -1, -every)
    ]


def _colour(number: int) -> str:
    if number == 0:
        return "mean"
    return f"c{number}" if number <= COLOURS else "rest"


def _told(series: Series) -> str:
    values = ", ".join(times(value) for value in series.values)
    return escape(f"{series.name}: {values}")


def _labels(trend: Trend, frame: Frame, y: Callable[[float], float], letters: int) -> list[str]:
    """Name and last figure at the right end, kept apart; beyond a few, the page's table has it."""
    shown = [
        (number, item, item.values[-1])
        for number, item in enumerate(trend.series)
        if item.values[-1]
    ][: LABELLED + 1]
    places = spread_apart(
        [y(value) for _, _, value in shown if value],
        LABEL_GAP,
        frame.top + 6,
        frame.height - frame.bottom - 2,
    )
    found = []
    for (number, item, value), place in zip(shown, places, strict=True):
        name = item.name if len(item.name) <= letters else f"{item.name[: letters - 1]}…"
        here = frame.width - frame.right + 8
        found.append(
            svg_text(here, place + 4, f"{name} {times(value)}", f"label {_colour(number)}", "start")
        )
    return found
