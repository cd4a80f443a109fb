"""Places of a chart's labels, so that none covers another label or a point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

RADII = (7.0, 12.0, 17.0, 27.0, 37.0, 47.0)
"""Pixels from a point to its label, the nearest first."""
ANGLES = (0, 180, 270, 90, 315, 225, 45, 135)
"""Degrees, clockwise as the page's axes go: right, left, above, below, then between them."""
LABEL_LETTER, HEIGHT = 6.6, 9.0
"""Pixels of a figure of 11 px type, rounded up."""


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """True where they share more than an edge."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: Box) -> bool:
        """True where the other lies inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


class Mark(NamedTuple):
    """A point that wants a label."""

    x: float
    y: float
    text: str


class Label(NamedTuple):
    """A text in its box; `led`: so far from its point that a line must lead there."""

    mark: Mark
    box: Box
    led: bool


def square_around(x: float, y: float, half: float) -> Box:
    """The square about a point."""
    return Box(x - half, y - half, x + half, y + half)


def boxes_along(points: Sequence[tuple[float, float]], step: float = 4.0) -> list[Box]:
    """A line through points as small boxes."""
    found = []
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        parts = max(1, math.ceil(math.hypot(x2 - x1, y2 - y1) / step))
        steps = [index / parts for index in range(parts + 1)]
        found += [square_around(x1 + at * (x2 - x1), y1 + at * (y2 - y1), 1.5) for at in steps]
    return found


def place_labels(marks: Sequence[Mark], taken: Sequence[Box], inside: Box) -> list[Label]:
    """Each label at the nearest free place, those of the first marks first; one that has none is
    left out. `taken`: what no label may cover. The same marks are always placed the same way."""
    covered = list(taken)
    found = []
    for mark in marks:
        for label in _places(mark):
            if inside.holds(label.box) and not any(map(label.box.meets, covered)):
                covered.append(label.box)
                found.append(label)
                break
    return found


def _places(mark: Mark) -> list[Label]:
    wide, high = LABEL_LETTER * len(mark.text), HEIGHT
    found = []
    for radius, angle in itertools.product(RADII, ANGLES):
        x = mark.x + math.cos(math.radians(angle)) * (radius + wide / 2)
        y = mark.y + math.sin(math.radians(angle)) * (radius + high / 2)
        box = Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        found.append(Label(mark, box, led=radius > RADII[0]))
    return found


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least `gap`, in their order, within `low` and `high` where there
    is room for all."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = [0.0] * len(places)
    last = low - gap
    for index in order:
        last = moved[index] = max(places[index], last + gap)
    last = high + gap
    for index in reversed(order):
        last = moved[index] = min(moved[index], last - gap)
    return moved
