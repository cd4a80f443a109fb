"""How do the speedups of a suite look, problem by problem, sorted, against each baseline?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from agentkernel.bench.rows import BASELINES, Baseline, Row

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 84
COLOURS: dict[Baseline, str] = {
    "eager": "#9a3412",
    "torch.compile": "#1d4ed8",
    "max-autotune": "#0b6e4f",
}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LEAST, MOST = 0.5, 2.0
"""The vertical axis shows at least this span."""


class Curve(NamedTuple):
    """The speedups over one baseline in ascending order, and how many problems have none."""

    baseline: Baseline
    values: tuple[float, ...]
    wrong: int


def curves(rows: Sequence[Row]) -> tuple[Curve, ...]:
    """One curve for each baseline that anything was measured against."""
    found: list[Curve] = []
    for baseline in BASELINES:
        timed = [row for row in rows if row.gpu is not None and row.times.of(baseline) is not None]
        best = [row.best for row in timed]
        ratios = [item.against(baseline) if item and item.correct else None for item in best]
        values = sorted(ratio.value for ratio in ratios if ratio is not None and ratio.value > 0)
        if timed:
            found.append(Curve(baseline, tuple(values), len(timed) - len(values)))
    return tuple(found)


def speedup_svg(rows: Sequence[Row], title: str) -> str:
    """A stand-alone SVG; without a measurement it says so."""
    found = curves(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="#111827">{escape(title)}</text>',
    ]
    values = [value for curve in found for value in curve.values]
    if not values:
        return "\n".join(
            [*parts, _text(WIDTH / 2, HEIGHT / 2, "not measured", "middle"), "</svg>\n"]
        )
    low, high = min(LEAST, *values), max(MOST, *values)
    parts += _grid(low, high)
    most = max(len(curve.values) for curve in found)
    for number, curve in enumerate(found):
        parts += _curve(curve, number, low, high, most)
    parts.append(_text(WIDTH / 2, HEIGHT - BOTTOM + 20, "problems, by speedup", "middle"))
    return "\n".join([*parts, "</svg>\n"])


def _y(value: float, low: float, high: float) -> float:
    part = math.log(value / low) / math.log(high / low)
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _grid(low: float, high: float) -> list[str]:
    lines: list[str] = []
    for tick in (item for item in TICKS if low <= item <= high):
        here = _y(tick, low, high)
        colour = "#111827" if tick == 1 else "#e5e7eb"
        lines.append(
            f'<line x1="{LEFT}" y1="{here:.1f}" x2="{WIDTH - RIGHT}" y2="{here:.1f}" '
            f'stroke="{colour}"/>'
        )
        lines.append(_text(LEFT - 6, here + 4, f"{tick:g}x", "end"))
    return lines


def _curve(curve: Curve, number: int, low: float, high: float, most: int) -> list[str]:
    colour, legend = COLOURS[curve.baseline], HEIGHT - BOTTOM + 40 + 14 * number
    step = (WIDTH - LEFT - RIGHT) / max(most, 1)
    marks = [
        f'<circle cx="{LEFT + (index + 0.5) * step:.1f}" cy="{_y(value, low, high):.1f}" r="2.5" '
        f'fill="{colour}"/>'
        for index, value in enumerate(curve.values)
    ]
    wrong = f", {curve.wrong} without a correct candidate" if curve.wrong else ""
    words = f"against {curve.baseline}: {len(curve.values)} problems{wrong}"
    dot = f'<circle cx="{LEFT + 5}" cy="{legend - 4}" r="4" fill="{colour}"/>'
    return [*marks, dot, _text(LEFT + 16, legend, words, "start")]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">'
        f"{escape(words)}</text>"
    )
