"""Points of a space of named axes, the same ones for the same space."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

Point = dict[str, int]


def drawn(
    axes: Mapping[str, Sequence[int]], fits: Callable[[Point], bool], most: int
) -> list[Point]:
    """All points that fit where they are at most `most`, else so many of them, drawn evenly; fewer
    are the first of more."""
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    fitting = [point for point in points if fits(point)]
    if len(fitting) <= most:
        return fitting
    random.Random(0).shuffle(fitting)
    return fitting[:most]


def powers(first: int, last: int) -> list[int]:
    """Powers of two from `first`, which is one, to `last`."""
    return [1 << place for place in range(first.bit_length() - 1, last.bit_length())]
