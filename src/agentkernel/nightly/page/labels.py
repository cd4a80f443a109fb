"""Where do the labels of a plot stand, so that none covers another or a point?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

RADII = (7.0, 12.0, 17.0, 27.0, 37.0, 47.0)
"""Pixels from a point to its label, the nearest first."""
ANGLES = (0, 180, 270, 90, 315, 225, 45, 135)
"""Degrees, clockwise as the page's axes go: right, left, above, below, then between them."""
LETTER, HEIGHT = 6.6, 9.0
"""Pixels of a figure of 11 px type, rounded up."""


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """True where they share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: Box) -> bool:
        """True where the other lies inside."""
        return (
            self.left <= other.left
            and self.top <= other.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )


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
        for index in range(parts + 1):
            part = index / parts
            found.append(square_around(x1 + part * (x2 - x1), y1 + part * (y2 - y1), 1.5))
    return found


def place_labels(marks: Sequence[Mark], taken: Sequence[Box], inside: Box) -> list[Label]:
    """Each label at the nearest free place, those of the first marks first; one that has none is
    left out. `taken`: what no label may cover. The same marks are always placed the same way."""
    covered = list(taken)
    found = []
    for mark in marks:
        label = next(
            (
                label
                for label in _places(mark)
                if inside.holds(label.box) and not any(label.box.meets(box) for box in covered)
            ),
            None,
        )
        if label is not None:
            covered.append(label.box)
            found.append(label)
    return found


def _places(mark: Mark) -> list[Label]:
    wide, high = LETTER * len(mark.text), HEIGHT
    found = []
    for radius in RADII:
        for angle in ANGLES:
            across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            x = mark.x + across * (radius + wide / 2)
            y = mark.y + down * (radius + high / 2)
            box = Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
            found.append(Label(mark, box, led=radius > RADII[0]))
    return found
