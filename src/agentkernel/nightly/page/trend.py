"""How did each model's speedup move from night to night?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from agentkernel.domain.night import NightlyRun
from agentkernel.domain.region import Basis
from agentkernel.nightly.page.drawing import (
    Frame,
    LogAxis,
    spread_apart,
    svg_line,
    svg_open,
    svg_path,
    svg_text,
    tick_label,
)
from agentkernel.nightly.page.speeds import mean_speedup, same_devices, speedup
from agentkernel.nightly.page.wording import times

WIDE = Frame(600, 370, left=44, right=188, bottom=34)
NARROW = Frame(370, 320, left=42, right=146, bottom=34)
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
