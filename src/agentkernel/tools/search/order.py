"""How well costs order measured times, and how soon the best is found, from recorded trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.domain.candidate import TrialResult

MEASURED = (8, 16, 24)
"""Counts of measurements after which the best so far is compared with the best of all."""
LEAST = 4
"""Fewer measured schedules of a segment have no order to speak of."""


@dataclass(frozen=True)
class Order:
    """Segments of one pattern: their mean rank correlation of cost and time, and of the best time
    the share that is reached by the cheapest 8, 16 and 24."""

    pattern: str
    segments: int
    measured: int
    correlation: float
    reached: tuple[float, ...]


def orders(trials: Sequence[TrialResult]) -> tuple[Order, ...]:
    """One entry a pattern of segments that have enough measured trials; names sorted."""
    segments: dict[str, list[TrialResult]] = {}
    for item in trials:
        if item.segment and item.time_us is not None and item.estimated_us is not None:
            segments.setdefault(item.segment, []).append(item)
    patterns: dict[str, list[list[TrialResult]]] = {}
    for name, items in segments.items():
        if len(items) >= LEAST:
            patterns.setdefault(name.split()[0], []).append(items)
    return tuple(_order(pattern, some) for pattern, some in sorted(patterns.items()))


def _order(pattern: str, segments: Sequence[Sequence[TrialResult]]) -> Order:
    return Order(
        pattern,
        len(segments),
        sum(len(items) for items in segments),
        _mean([rank_correlation(_costs(items), _times(items)) for items in segments]),
        tuple(_mean([reached(items, count) for items in segments]) for count in MEASURED),
    )


def _costs(items: Sequence[TrialResult]) -> list[float]:
    return [math.inf if item.estimated_us is None else item.estimated_us for item in items]


def _times(items: Sequence[TrialResult]) -> list[float]:
    return [math.inf if item.time_us is None else item.time_us for item in items]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def reached(items: Sequence[TrialResult], count: int) -> float:
    """The best time of all over the best of the `count` cheapest: 1 where it is among them."""
    ranked = sorted(zip(_costs(items), _times(items), strict=True))
    times = [time for _, time in ranked]
    return min(times) / min(times[:count])


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rho with equal values at their mean rank; 0 where one side is all equal."""
    one, other = _ranks(left), _ranks(right)
    middle = (len(one) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    spread = math.sqrt(sum((a - middle) ** 2 for a in one) * sum((b - middle) ** 2 for b in other))
    return both / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    last = {value: place for place, value in enumerate(ordered)}
    return [(first[value] + last[value]) / 2 for value in values]
