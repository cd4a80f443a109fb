"""Do the schedules of one problem compute the same thing? A quick look, no judgement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

MAX_DEVIATION = 0.05
"""Relative distance of a sketch from the majority's: far above any rounding, far below a bug."""
MAJORITY = 3
"""Fewer schedules than this have no majority to differ from."""


class Sketch(NamedTuple):
    """A few hundred elements spread over a call's outputs, with how many are NaN altogether."""

    nan_count: int
    samples: tuple[float, ...]


def disagreements(sketches: Mapping[int, Sketch]) -> dict[int, str]:
    """Index -> why its output is broken: other sizes, other NaNs, or far from the median output."""
    if len(sketches) < MAJORITY:
        return {}
    reasons: dict[int, str] = {}
    size = _most_common([len(item.samples) for item in sketches.values()])
    nans = _most_common([item.nan_count for item in sketches.values()])
    for index, item in sketches.items():
        if len(item.samples) != size:
            reasons[index] = f"{len(item.samples)} sampled elements where most have {size}"
        elif item.nan_count != nans:
            reasons[index] = f"{item.nan_count} NaN in its output where most have {nans}"
    alike = {index: item for index, item in sketches.items() if index not in reasons}
    return reasons | _far(alike)


def _far(sketches: Mapping[int, Sketch]) -> dict[int, str]:
    if len(sketches) < MAJORITY:
        return {}
    rows = np.asarray([item.samples for item in sketches.values()], float)
    middle = np.median(rows, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = float(np.linalg.norm(middle)) or float(np.finfo(float).tiny)
        distance = np.linalg.norm(rows - middle, axis=1) / scale
    return {
        index: f"its output is {value:.2g} (relative) away from that of most schedules"
        for index, value in zip(sketches, distance, strict=True)
        if not value <= MAX_DEVIATION
    }


def _most_common(values: list[int]) -> int:
    return Counter(values).most_common(1)[0][0]
