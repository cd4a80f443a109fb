"""A chart as a value: two axes, series of points or lines, and limits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

TICK_GAP = 26.0
"""Least pixels between two labels of an axis."""
LETTER, TICK_SPACE = 7.2, 9.0
"""Pixels of a letter on an axis, and of the space between two labels."""
MOST_DOTS = 40
"""Points of a line with more have no dots."""
STEPS = (1.0, 2.0, 5.0)
FINE = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


class Tick(NamedTuple):
    """A value of an axis with its label."""

    value: float
    text: str


class Axis(NamedTuple):
    """An axis from `low` to `high`, above 0 where it is logarithmic. `marked`: its labels, as many
    as there is room for; None for round values with `unit` behind them."""

    low: float
    high: float
    title: str = ""
    unit: str = ""
    log: bool = True
    marked: tuple[Tick, ...] | None = None

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end; what lies outside is drawn at the end."""
        if self.log:
            part = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)

    def ticks(self, length: float, letter: float = 0.0) -> list[Tick]:
        """The labels for which there is room on `length` pixels, of given ones the last always;
        `letter`: pixels of one of their letters, where they stand side by side."""
        found: list[Tick] = []
        for tick in self._round(length, letter) if self.marked is None else self.marked[::-1]:
            if not found or self._apart(found[-1], tick, length, letter):
                found.append(tick)
        return found

    def _apart(self, one: Tick, two: Tick, length: float, letter: float) -> bool:
        wide = letter * (len(one.text) + len(two.text)) / 2 + TICK_SPACE
        return abs(self.place(one.value) - self.place(two.value)) * length >= max(TICK_GAP, wide)

    def _round(self, length: float, letter: float) -> list[Tick]:
        """Steps of 1, 2, 5 where all have room, else powers of ten; finer ones within one."""
        decades = math.log10(self.high / self.low)
        gap = max(TICK_GAP, 5 * letter + TICK_SPACE)
        coarse = STEPS if length * math.log10(2) >= gap * decades else (1.0,)
        steps = coarse if decades > 0.9 else FINE
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = [10.0**power * step for power in range(first, last + 1) for step in steps]
        inside = [item for item in values if self.low * 0.9999 <= item <= self.high * 1.0001]
        return [Tick(value, f"{tick_label(value)}{self.unit}") for value in inside]


class Series(NamedTuple):
    """Points (x, y), joined by a line or not. `kind` names its colour; `name` is its line in the
    legend and what a hover tells; `before`: where its only point was."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]
    line: bool = False
    radius: float = 0.0
    """Of its dots, in pixels; 0 for none."""
    before: float | None = None
    label: str = ""
    """Stands beside its point; of a line, shortened to what fits, at the right end."""
    figure: str = ""
    """Behind the label, never shortened."""
    href: str = ""
    bars: tuple[tuple[float, float, float], ...] = ()
    """Intervals of its points, as (x, low, high)."""


class Limit(NamedTuple):
    """A line that nothing passes, with its name at its end."""

    name: str
    corners: tuple[tuple[float, float], ...]


class Chart(NamedTuple):
    """Series, the first on top, within two axes. `base`: the y that others are read against;
    `changed`: each x from which on things differ; `nothing` stands where no point is."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    limits: tuple[Limit, ...] = ()
    base: float | None = None
    changed: tuple[float, ...] = ()
    nothing: str = ""


def joined(name: str, kind: str, points: Iterable[tuple[float, float]]) -> Series:
    """A line, with a dot at each point while they are few."""
    found = tuple(points)
    return Series(name, kind, found, line=True, radius=2.5 if len(found) <= MOST_DOTS else 0.0)


def linear_axis(
    low: float, high: float, parts: int, title: str = "", *, whole: bool = False
) -> Axis:
    """An axis with a label at the ends of each of its parts; `whole`: at whole numbers."""
    ends = [low + (high - low) * part / parts for part in range(parts + 1)]
    ticks = [
        Tick(round(end), f"{round(end):,}") if whole else Tick(end, f"{end:.3g}") for end in ends
    ]
    return Axis(low, high, title, log=False, marked=tuple(dict.fromkeys(ticks)))


def tick_label(value: float) -> str:
    """A tick's label: `0.01`, `1,000`, `1e6`."""
    if value >= 1e6 or value < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
