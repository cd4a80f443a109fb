"""Coordinate descent over the schedules of a space: which of them to measure next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from agentkernel.tools.search.space import Schedule

FIRST = 16
"""Measured before the descent begins."""
ROUND = 4
"""Measured before it is asked again which is the best."""


class Descent:
    """Hands out schedules of `order`, the likeliest first, each at most once and `most` in all:
    first `FIRST` in that order, then, round by round, those that differ from the best so far along
    one axis, the nearest first. Where no such one is left, the order goes on."""

    def __init__(self, schedules: Sequence[Schedule], order: Sequence[int], most: int) -> None:
        self._axes = [_axes(item) for item in schedules]
        self._left = dict.fromkeys(order)
        self._budget = most
        self.chosen: list[int] = []
        """All that were handed out."""

    def first(self) -> tuple[int, ...]:
        """Those to begin with."""
        return self._take(list(self._left)[:FIRST])

    def following(self, times_us: Mapping[int, float]) -> tuple[int, ...]:
        """The next round by what is known; none once all is handed out or the budget spent."""
        if not times_us:
            return self._take(list(self._left)[:ROUND])
        best = min(times_us, key=lambda index: (times_us[index], index))
        steps = {index: _step(self._axes[best], self._axes[index]) for index in self._left}
        # Equal steps stay in the order of the likeliest.
        return self._take(sorted(self._left, key=lambda index: steps[index])[:ROUND])

    def _take(self, indices: Sequence[int]) -> tuple[int, ...]:
        taken = tuple(indices[: self._budget - len(self.chosen)])
        self.chosen += taken
        for index in taken:
            del self._left[index]
        return taken


Axes = dict[tuple[str, str], int]


def _axes(schedule: Schedule) -> Axes:
    """Kernel and constant -> value."""
    return {
        (kernel, name): value
        for kernel, constants in schedule.items()
        for name, value in constants.items()
    }


def _step(left: Axes, right: Axes) -> float:
    """Doublings between schedules that differ along one axis; infinite where they differ along
    more, or in their axes. A switch, whose value may be 0, counts as one from there to 1."""
    if left.keys() != right.keys():
        return math.inf
    apart = [(left[axis], right[axis]) for axis in left if left[axis] != right[axis]]
    if len(apart) != 1:
        return math.inf
    ((one, other),) = apart
    return abs(math.log2(1 + max(0, one)) - math.log2(1 + max(0, other)))
