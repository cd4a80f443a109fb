"""A log-log roofline chart in text, with each candidate below the roof of the target."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import Roofline, RooflinePoint
from agentkernel.cli.rendering.text import View, flat, grid, hanging, lines, show_share, truncate
from agentkernel.tools.charts.chart import Axis, Chart, Limit, Series
from agentkernel.tools.charts.terminal import chart_text

MOST_WIDTH = 100
LEAST_WIDTH = 36
"""Columns below which there is no chart, only figures."""
LEGEND_WIDTH = 64
"""Columns below which the legend is no table."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def roofline(reply: Roofline, view: View) -> RenderableType:
    """The roof with its ridge, the candidates by their marks, and what the marks mean."""
    names = marks(reply.points)
    title = lines(
        Text(f"Roofline of {reply.target}", style="bold"),
        f"roof: {figure(reply.gb_per_s)} GB/s, then {figure(reply.peak_gflops)} GFLOP/s "
        f"({reply.peak_of}); ridge at {figure(ridge(reply))} FLOP/byte",
    )
    parts: list[RenderableType] = [lines(_bound(reply)), title] if reply.points else [title]
    if view.width >= LEAST_WIDTH:
        drawn = chart_text(
            chart_of(reply, names), min(view.width, MOST_WIDTH), unicode=view.unicode
        )
        ends = Text(drawn[0], style="dim"), Text(drawn[-1], style="dim")
        parts += ["", ends[0], *map(Text, drawn[1:-1]), ends[1]]
    parts += ["", legend(reply, names, view)]
    parts += [lines(reply.note)] if reply.note else []
    return Group(*parts)


def _bound(reply: Roofline) -> str:
    """What bounds the last point, in a sentence."""
    point = reply.points[-1]
    by, side = ("memory", "below") if point.intensity < ridge(reply) else ("compute", "above")
    return (
        f"{flat(point.label)} is bound by {by}: {figure(point.intensity)} FLOP/byte, {side} the "
        f"ridge at {figure(ridge(reply))}."
    )


def ridge(reply: Roofline) -> float:
    """FLOPs a byte from which on computing, not memory, is the limit."""
    return reply.peak_gflops / reply.gb_per_s


def roof(reply: Roofline, intensity: float) -> float:
    """GFLOP/s that can be reached at most."""
    return min(reply.peak_gflops, reply.gb_per_s * intensity)


def marks(points: Sequence[RooflinePoint]) -> list[str]:
    """A short name a point: c3 as it is, letters for the rest; in brackets where estimated."""
    letters = iter([*LETTERS, *(f"z{number}" for number in range(1, len(points) + 1))])
    found = []
    for point in points:
        name = point.label if re.fullmatch(r"c?\d{1,4}", point.label) else next(letters)
        found.append(name if point.measured else f"({name})")
    return found


def legend(reply: Roofline, names: Sequence[str], view: View) -> RenderableType:
    """One line a point, with how it was found out."""
    pairs = list(zip(names, reply.points, strict=True))
    if not pairs:
        return lines("No candidate has a time yet.")
    if view.width < LEGEND_WIDTH:
        return Group(*(_legend_line(reply, name, point, view) for name, point in pairs))
    rows = [
        (
            name,
            "" if name.strip("()") == point.label else _label(point, view),
            figure(point.intensity),
            figure(point.gflops),
            show_share(point.gflops / roof(reply, point.intensity)),
            "measured" if point.measured else "estimated",
        )
        for name, point in pairs
    ]
    headings = ("mark", "", "FLOP/byte", "GFLOP/s", "of roof", "")
    return grid(headings, rows, view, right=(2, 3, 4))


def _label(point: RooflinePoint, view: View) -> str:
    return truncate(point.label, max(8, view.width - 46), view.unicode)


def _legend_line(reply: Roofline, name: str, point: RooflinePoint, view: View) -> RenderableType:
    share = show_share(point.gflops / roof(reply, point.intensity))
    how = "measured" if point.measured else "estimated"
    speed = f"{figure(point.gflops)} GFLOP/s, {share} of roof, {how}"
    other = "" if name.strip("()") == point.label else f"{point.label}: "
    return hanging(f"{name} ", f"{other}{speed}", view)


def figure(value: float) -> str:
    """Three figures; thousands and more without an exponent up to a million."""
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def chart_of(reply: Roofline, names: Sequence[str]) -> Chart:
    """The points by their marks below the roof, with some room around."""
    xs = [ridge(reply), *(point.intensity for point in reply.points)]
    ys = [point.gflops for point in reply.points]
    low, high = min(xs) / 2, max(xs) * 4
    x = Axis(low, high, "FLOP/byte")
    y = Axis(min([*ys, roof(reply, low * 2)]) / 2, max([*ys, reply.peak_gflops]) * 1.6, "GFLOP/s")
    enter = max(low, y.low / reply.gb_per_s)
    corners = tuple((value, roof(reply, value)) for value in (enter, ridge(reply), high))
    series = tuple(
        Series(point.label, "", ((point.intensity, point.gflops),), label=name)
        for name, point in zip(names, reply.points, strict=True)
    )
    return Chart(reply.target, x, y, series, (Limit("", corners),))


__all__ = ["roofline"]
