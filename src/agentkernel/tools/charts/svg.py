"""A chart as SVG: a part of a page, which has the colours, or a file of its own.

Colours and widths are CSS classes: a page has its own for light and dark, a file brings them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from agentkernel.tools.charts.chart import LETTER, Chart, Series
from agentkernel.tools.charts.labels import (
    Box,
    Mark,
    boxes_along,
    place_labels,
    spread_apart,
    square_around,
)

LABEL_GAP = 15.0
"""Pixels between the lines of a legend, and of labels at the right end."""
TOP = 38
"""Pixels of a file's title."""


class Frame(NamedTuple):
    """The size of a drawing and its margins, in pixels."""

    width: int
    height: int
    left: int = 58
    right: int = 18
    top: int = 14
    bottom: int = 44

    @property
    def across(self) -> float:
        """Pixels between the axes' ends, left to right."""
        return float(self.width - self.left - self.right)

    @property
    def up(self) -> float:
        """Pixels between the axes' ends, bottom to top."""
        return float(self.height - self.top - self.bottom)

    @property
    def low(self) -> float:
        """Where the lower axis lies."""
        return float(self.height - self.bottom)


def chart_svg(chart: Chart, frame: Frame, name: str) -> str:
    """A drawing of the class `name` for a page that has the style."""
    head = f'<svg class="{name}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
    title = f'xmlns="http://www.w3.org/2000/svg"><title>{escape(chart.title)}</title>'
    return "".join([head, title, *_drawn(chart, frame), "</svg>"])


def svg_file(title: str, charts: Sequence[Chart], frame: Frame) -> str:
    """A stand-alone SVG: the charts below one another, each with its legend."""
    style = files("agentkernel.tools.charts").joinpath("file.css").read_text("utf-8")
    parts, top = [_text(frame.left, 22, title, "head", "start")], float(TOP)
    for chart in charts:
        named = [series for series in chart.series if series.name]
        heading = "" if chart.title == title else chart.title
        parts += [f'<g transform="translate(0 {top:g})">', *_drawn(chart, frame)]
        parts += [_text(frame.left, 8, heading, anchor="start")] if heading else []
        for number, series in enumerate(named):
            y = frame.height + LABEL_GAP * number + 8
            parts.append(_dot(frame.left + 5, y - 4, 4, f"dot {series.kind}"))
            parts.append(_text(frame.left + 16, y, series.name, anchor="start"))
        parts.append("</g>")
        top += frame.height + LABEL_GAP * len(named) + (8 if named else 0)
    size = f'viewBox="0 0 {frame.width} {top:g}" width="{frame.width}" height="{top:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    words = f"<title>{escape(title)}</title><style>\n{style}</style>"
    return "\n".join(
        [head, words, '<rect class="paper" width="100%" height="100%"/>', *parts, "</svg>\n"]
    )


def _drawn(chart: Chart, frame: Frame) -> list[str]:
    if not any(series.points for series in chart.series):
        return [_text(frame.left + frame.across / 2, frame.top + frame.up / 2, chart.nothing)]
    frame = _beside_ticks(chart, frame)
    right = frame.width - float(frame.right)
    parts, taken = list(_grid(chart, frame)), []
    for limit in chart.limits:
        drawn = [_place(chart, frame, point) for point in limit.corners]
        x, y = right - 4, drawn[-1][1] - 6
        parts += [_path(drawn, "roof"), _text(x, y, limit.name, "roofname", "end")]
        taken += [*boxes_along(drawn), Box(x - LETTER * len(limit.name), y - 11, x, y + 3)]
    for value in chart.changed:
        x = frame.left + chart.x.place(value) * frame.across
        parts.append(_line(x, frame.top, x, frame.low, "changed"))
    marks = []
    for series in chart.series[::-1]:  # the first lies on top
        places = [_place(chart, frame, point) for point in series.points]
        was = [_place(chart, frame, (series.points[0][0], y)) for y in [series.before] if y]
        ends = [
            (_place(chart, frame, (x, low)), _place(chart, frame, (x, high)))
            for x, low, high in series.bars
        ]
        parts += [_line(*low, *high, f"bar {series.kind}") for low, high in ends]
        parts += _series(series, places, was)
        if not series.line:
            taken += [square_around(*place, series.radius + 1) for place in places]
            taken += [square_around(*place, 4) for place in was]
            taken += boxes_along([*was, places[0]]) if was else ()
            marks += [Mark(*places[0], series.label)] if series.label else []
    inside = Box(frame.left, frame.top, right, frame.low)
    for label in place_labels(marks[::-1], taken, inside):
        (x, y), box = label.mark[:2], label.box
        at = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        part = 5 / (math.dist((x, y), at) or math.inf)  # from the edge of its dot
        start = x + part * (at[0] - x), y + part * (at[1] - y)
        parts += [_line(*start, *at, "leader")] if label.led else []
        parts.append(_text(at[0], box.bottom, label.mark.text, "number"))
    parts += _end_labels(chart, frame)
    return parts


TITLE_X = 12
"""Where the title of the upright axis stands: its letters reach from 10 pixels before to 4 past."""
TICK_AWAY = 6


def _beside_ticks(chart: Chart, frame: Frame) -> Frame:
    """`frame` with as much room at its left as the ticks and the title of the upright axis need
    beside one another."""
    if not chart.y.title:
        return frame
    widest = max((len(text) for _, text in chart.y.ticks(frame.up)), default=0)
    needed = math.ceil(TITLE_X + 4 + TICK_AWAY + LETTER * widest)
    return frame._replace(left=max(frame.left, needed))


def _place(chart: Chart, frame: Frame, point: tuple[float, float]) -> tuple[float, float]:
    x, y = chart.x.place(point[0]), chart.y.place(point[1])
    return frame.left + x * frame.across, frame.low - y * frame.up


def _grid(chart: Chart, frame: Frame) -> Iterator[str]:
    low, right = frame.low, frame.width - frame.right
    for value, text in chart.x.ticks(frame.across, LETTER):
        x = frame.left + chart.x.place(value) * frame.across
        if chart.x.marked is None:
            yield _line(x, frame.top, x, low, "grid")
        yield _text(x, low + 16, text)
    for value, text in chart.y.ticks(frame.up):
        y = low - chart.y.place(value) * frame.up
        yield _line(frame.left, y, right, y, "one" if value == chart.base else "grid")
        yield _text(frame.left - TICK_AWAY, y + 4, text, anchor="end")
    yield _text(frame.left + frame.across / 2, low + 35, chart.x.title, "title")
    turn = f'<g transform="translate({TITLE_X} {frame.top + frame.up / 2:.1f}) rotate(-90)">'
    yield f"{turn}{_text(0, 0, chart.y.title, 'title')}</g>" if chart.y.title else ""


def _series(
    series: Series, places: Sequence[tuple[float, float]], was: Sequence[tuple[float, float]]
) -> Iterator[str]:
    yield f'<a href="{escape(series.href)}">' if series.href else "<g>"
    yield f"<title>{escape(series.name)}</title>" if series.name else ""
    for before in was:
        yield _line(*before, *places[0], "step")
        yield _dot(*before, 3, "before")
    if series.line and places:
        yield _path(places, f"series {series.kind}")
    if series.radius:
        name = "point" if series.line else "dot"
        yield from (_dot(*place, series.radius, f"{name} {series.kind}") for place in places)
    yield "</a>" if series.href else "</g>"


def _end_labels(chart: Chart, frame: Frame) -> Iterator[str]:
    """Name and last figure of lines, kept apart."""
    shown = [series for series in chart.series if series.line and series.label]
    heights = [_place(chart, frame, series.points[-1])[1] for series in shown]
    room = int((frame.right - 8) / LETTER) - 1
    x = frame.width - frame.right + 8
    for series, y in zip(
        shown, spread_apart(heights, LABEL_GAP, frame.top + 6, frame.low - 2), strict=True
    ):
        most = room - len(series.figure)
        name = series.label if len(series.label) <= most else f"{series.label[: most - 1]}…"
        yield _text(x, y + 4, f"{name} {series.figure}", f"label {series.kind}", "start")


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _path(points: Sequence[tuple[float, float]], name: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{name}" points="{joined}"/>'


def _dot(x: float, y: float, radius: float, name: str) -> str:
    return f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _text(x: float, y: float, text: str, name: str = "", anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{name}" {place}>{escape(text)}</text>' if text else ""
