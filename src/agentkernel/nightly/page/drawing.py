"""How is a plot drawn as SVG that takes its colours from the page, light or dark?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

TICK_GAP = 26.0
"""Least pixels between two labels of an axis."""
LETTER, TICK_SPACE = 7.2, 9.0
"""Pixels of a letter on an axis, and of the space between two labels."""
STEPS = (1.0, 2.0, 5.0)
FINE = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


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


class LogAxis(NamedTuple):
    """A logarithmic axis from `low` to `high`, both above 0, over `length` pixels."""

    low: float
    high: float
    length: float

    def place(self, value: float) -> float:
        """Pixels from the low end; what lies outside is drawn at the end."""
        part = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        return min(max(part, 0.0), 1.0) * self.length

    def ticks(self, letter: float = 0.0) -> list[float]:
        """Round values inside, as many as there is room for; `letter`: pixels of one letter of
        their labels, where these stand side by side."""
        decades = math.log10(self.high / self.low)
        steps = (1.0,) if decades > 4 else STEPS if decades > 0.9 else FINE
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found: list[float] = []
        values = [10.0**power * step for power in range(first, last + 1) for step in steps]
        for value in values:
            inside = self.low * 0.9999 <= value <= self.high * 1.0001
            if inside and (not found or self._apart(found[-1], value, letter)):
                found.append(value)
        return found

    def _apart(self, low: float, high: float, letter: float) -> bool:
        wide = letter * (len(tick_label(low)) + len(tick_label(high))) / 2
        return self.place(high) - self.place(low) >= max(TICK_GAP, wide + TICK_SPACE)


def svg_open(frame: Frame, name: str, title: str) -> str:
    """The first tag of a drawing with its name for those who do not see it."""
    return (
        f'<svg class="{name}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    )


def svg_line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    """A straight line of a class."""
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg_path(points: Sequence[tuple[float, float]], name: str) -> str:
    """A line through points of a class."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{name}" points="{joined}"/>'


def svg_text(x: float, y: float, text: str, name: str = "", anchor: str = "middle") -> str:
    """A text at its baseline."""
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def tick_label(value: float) -> str:
    """A tick's label: `0.01`, `1,000`, `1e6`."""
    if value >= 1e6 or value < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least `gap`, in their order, within `low` and `high` where there
    is room for all."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [0.0] * len(places)
    last = low - gap
    for index in order:
        last = moved[index] = max(places[index], last + gap)
    over = last - high
    for index in reversed(order):
        if over <= 0:
            break
        moved[index] -= over
        here = order.index(index)
        room = moved[order[here - 1]] + gap - moved[index] if here else 0.0
        over = max(room, 0.0)
    return moved
