"""A chart as lines of text, for a terminal."""

from __future__ import annotations

import itertools

from agentkernel.tools.charts.chart import LETTER, TICK_GAP, Axis, Chart, Tick

ROWS = 14
LEFT = 9
"""Columns of the vertical axis."""
SAME = 1.02
"""Points within this factor stand in one column: rounding must not set them apart."""
SIGNS = {False: "/-+|+-", True: "╱─┬│└─"}
"""Slope, ceiling, ridge, side, corner and floor, in ASCII and beyond."""


def chart_text(chart: Chart, columns: int, *, unicode: bool) -> list[str]:
    """The points by their labels below the limits, in `columns` columns with the vertical axis; the
    first and last line are the titles of the axes."""
    columns -= LEFT + 1
    cells = [[" "] * columns for _ in range(ROWS)]
    signs = SIGNS[unicode]
    for limit in chart.limits:
        _draw_limit(cells, [_cell(chart, corner, columns) for corner in limit.corners], signs)
    _draw_points(cells, chart, columns)
    ticks = {_row(chart.y, tick): tick.text for tick in chart.y.ticks(ROWS * TICK_GAP)}
    return [
        f" {chart.y.title}",
        *(
            f"{ticks.get(row, ''):>{LEFT - 1}} {signs[3]}{''.join(cells[row])}".rstrip()
            for row in range(ROWS)
        ),
        " " * LEFT + signs[4] + signs[5] * columns,
        _floor(chart.x, columns),
        chart.x.title.rjust(LEFT + columns),
    ]


def _cell(chart: Chart, point: tuple[float, float], columns: int) -> tuple[int, int]:
    """Column and row, the latter 0 at the top."""
    return round(chart.x.place(point[0]) * (columns - 1)), _row(chart.y, Tick(point[1], ""))


def _row(axis: Axis, tick: Tick) -> int:
    return ROWS - 1 - round(axis.place(tick.value) * (ROWS - 1))


def _draw_limit(cells: list[list[str]], corners: list[tuple[int, int]], signs: str) -> None:
    for (left, low), (right, high) in itertools.pairwise(corners):
        before = low
        for column in range(left, right + 1):
            row = low + round((high - low) * (column - left) / max(right - left, 1))
            # A steep slope leaves no gap between one column and the next.
            for height in range(row, max(before - 1, row) + 1):
                cells[height][column] = signs[0] if high < low else signs[1]
            before = row
    for column, row in corners[1:-1]:
        cells[row][column] = signs[2]


def _draw_points(cells: list[list[str]], chart: Chart, columns: int) -> None:
    """Labels whose places run into one another stand side by side, with a comma between."""
    begun: float = 0.0
    found: dict[int, list[tuple[int, str]]] = {}
    for series in sorted(chart.series, key=lambda item: item.points[0][0]):
        x, y = series.points[0]
        begun = x if x > begun * SAME else begun
        column, row = _cell(chart, (begun, y), columns)
        found.setdefault(row, []).append((column, series.label))
    for row, labels in found.items():
        taken: list[tuple[int, str]] = []
        for column, label in sorted(labels):
            if taken and column <= taken[-1][0] + len(taken[-1][1]):
                taken[-1] = taken[-1][0], f"{taken[-1][1]},{label}"
            else:
                taken.append((column, label))
        for column, text in taken:
            text = text if len(text) <= columns else f"{text[: columns - 1]}>"
            start = max(0, min(column, columns - len(text)))
            cells[row][start : start + len(text)] = text


def _floor(axis: Axis, columns: int) -> str:
    signs = [" "] * (LEFT + 1 + columns)
    for tick in axis.ticks(columns * LETTER, LETTER):
        start = LEFT + 1 + round(axis.place(tick.value) * (columns - 1))
        start = min(start, len(signs) - len(tick.text))
        signs[start : start + len(tick.text)] = tick.text
    return "".join(signs).rstrip()
