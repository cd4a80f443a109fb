"""A log-log roofline chart in text, with each candidate below the roof of the target."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import Roofline, RooflinePoint
from agentkernel.cli.rendering.text import View, grid, hanging, lines, show_share, truncate

ROWS = 14
LEFT = 9
"""Columns of the vertical axis."""
MOST_WIDTH = 100
LEAST_WIDTH = 36
"""Columns below which there is no chart, only figures."""
LEGEND_WIDTH = 64
"""Columns below which the legend is no table."""
SAME_INTENSITY = 1.02
"""Points within this factor stand in one column: rounding must not set them apart."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Chart:
    """Which intensities (FLOPs a byte) and GFLOP/s the corners of `columns` x `ROWS` signs are."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float
    columns: int

    def column(self, intensity: float) -> int:
        """The column of an intensity."""
        return _place(intensity, self.low_x, self.high_x, self.columns)

    def row(self, gflops: float) -> int:
        """The row of a speed, 0 at the top."""
        return ROWS - 1 - _place(gflops, self.low_y, self.high_y, ROWS)

    def intensity(self, column: int) -> float:
        """The intensity in the middle of a column."""
        share = column / max(1, self.columns - 1)
        return float(self.low_x * (self.high_x / self.low_x) ** share)


def roofline(reply: Roofline, view: View) -> RenderableType:
    """The roof with its ridge, the candidates by their marks, and what the marks mean."""
    names = marks(reply.points)
    title = lines(
        Text(f"Roofline of {reply.target}", style="bold"),
        f"roof: {figure(reply.gb_per_s)} GB/s, then {figure(reply.peak_gflops)} GFLOP/s "
        f"({reply.peak_of}); ridge at {figure(ridge(reply))} FLOP/byte",
    )
    parts: list[RenderableType] = [title]
    if view.width >= LEAST_WIDTH:
        parts += ["", *_drawn(reply, names, view)]
    parts += ["", legend(reply, names, view)]
    parts += [lines(reply.note)] if reply.note else []
    return Group(*parts)


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


def chart_of(reply: Roofline, view: View) -> Chart:
    """Limits that hold the ridge and every point, with some room around."""
    xs = [point.intensity for point in reply.points] + [ridge(reply)]
    low_x, high_x = min(xs) / 2, max(xs) * 4
    ys = [point.gflops for point in reply.points]
    low_y = min([*ys, roof(reply, min(xs))]) / 2
    high_y = max([*ys, reply.peak_gflops]) * 1.6
    columns = min(view.width, MOST_WIDTH) - LEFT - 1
    return Chart(low_x, high_x, low_y, high_y, columns)


def _place(value: float, low: float, high: float, count: int) -> int:
    share = math.log(value / low) / math.log(high / low)
    return min(count - 1, max(0, round(share * (count - 1))))


def _drawn(reply: Roofline, names: Sequence[str], view: View) -> list[Text]:
    chart = chart_of(reply, view)
    cells = [[" "] * chart.columns for _ in range(ROWS)]
    _draw_roof(cells, reply, chart, view)
    _draw_points(cells, reply, names, chart)
    ticks = {chart.row(value): figure(value) for value in _decades(chart.low_y, chart.high_y)}
    side = view.sign("│", "|")
    drawn = [
        Text(f"{ticks.get(row, ''):>{LEFT - 1}} {side}{''.join(cells[row])}".rstrip())
        for row in range(ROWS)
    ]
    floor = view.sign("└", "+") + view.sign("─", "-") * chart.columns
    return [
        Text(" GFLOP/s", style="dim"),
        *drawn,
        Text(" " * LEFT + floor),
        Text(_axis(chart)),
        Text("FLOP/byte".rjust(LEFT + chart.columns), style="dim"),
    ]


def _draw_roof(cells: list[list[str]], reply: Roofline, chart: Chart, view: View) -> None:
    before = None
    edge = chart.column(ridge(reply))
    for column in range(chart.columns):
        row = chart.row(roof(reply, chart.intensity(column)))
        flat = column > edge
        cells[row][column] = view.sign("─", "-") if flat else view.sign("╱", "/")
        # A steep roof leaves no gap between one column and the next.
        for between in range(row + 1, before if before is not None else row):
            cells[between][column] = view.sign("╱", "/")
        before = row
    cells[chart.row(reply.peak_gflops)][edge] = view.sign("┬", "+")


def _draw_points(
    cells: list[list[str]], reply: Roofline, names: Sequence[str], chart: Chart
) -> None:
    """Marks whose places run into one another stand side by side, with a comma between."""
    groups: dict[int, list[tuple[int, str]]] = {}
    columns = _columns([point.intensity for point in reply.points], chart)
    for name, point in zip(names, reply.points, strict=True):
        row = groups.setdefault(chart.row(point.gflops), [])
        row.append((columns[point.intensity], name))
    for height, found in groups.items():
        taken: list[tuple[int, str]] = []
        for column, name in sorted(found):
            if taken and column <= taken[-1][0] + len(taken[-1][1]):
                taken[-1] = (taken[-1][0], f"{taken[-1][1]},{name}")
            else:
                taken.append((column, name))
        for column, text in taken:
            text = truncate(text, chart.columns, unicode=False)
            start = max(0, min(column, chart.columns - len(text)))
            cells[height][start : start + len(text)] = list(text)


def _columns(intensities: Sequence[float], chart: Chart) -> dict[float, int]:
    """The column of each intensity; those that are one but for rounding share it."""
    found: dict[float, int] = {}
    begun = 0.0
    for value in sorted(set(intensities)):
        if not begun or value > begun * SAME_INTENSITY:
            begun = value
        found[value] = chart.column(begun)
    return found


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    step = max(1, (last - first) // 6 + 1)
    return [10.0**power for power in range(first, last + 1, step)]


def _axis(chart: Chart) -> str:
    signs = [" "] * (LEFT + 1 + chart.columns)
    for value in _decades(chart.low_x, chart.high_x):
        text = figure(value)
        start = min(LEFT + 1 + chart.column(value), len(signs) - len(text))
        if all(sign == " " for sign in signs[max(0, start - 1) : start + len(text)]):
            signs[start : start + len(text)] = list(text)
    return "".join(signs).rstrip()


__all__ = ["roofline"]
