"""Do the clock outside and the clock inside tell the same time of a call?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.profile import ClockCheck, ClockState, ProfileFailed
from agentkernel.domain.verdict import TimingDisputed

TOLERANCE = 0.05
"""Relative difference of the clocks beyond which one of them is not believed."""
SHORT_US = 50.0
"""Below this the start and end of kernels weigh too much for the clocks to be compared."""
SLACK_US = {"cuda": 3.0, "cpu": 60.0}
"""A kernel boundary and two event records a call, which the volley without the call lacks. On the
CPU (the tests) the parent shares two cores with what it measures."""
SHORT_SLACK_US = 10.0
"""The same below `SHORT_US`, where a difference must be plain to count."""
FEWEST = 3


class ClockPair(NamedTuple):
    """A volley: its calls, the wall microseconds outside, the median call inside."""

    calls: int
    wall_us: float
    inside_us: float = 0.0


class EmptyBatchCost(NamedTuple):
    """What volleys without the call take: `start_us` and `call_us` for each turn of the loop, and
    how far each of them is from that (`off_us`)."""

    start_us: float
    call_us: float
    off_us: tuple[float, ...] = ()

    def wall_us(self, calls: int) -> float:
        """Wall microseconds of an empty volley of `calls` turns."""
        return self.start_us + self.call_us * calls


def fit_empty_batches(volleys: Sequence[ClockPair]) -> EmptyBatchCost:
    """Theil-Sen line through the empty volleys of different lengths (Sen, JASA 63, 1968): half of
    the points but a few may be outliers. With one length alone all of it is start."""
    slopes = [
        (b.wall_us - a.wall_us) / (b.calls - a.calls)
        for index, a in enumerate(volleys)
        for b in volleys[index + 1 :]
        if a.calls != b.calls
    ]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    starts = [item.wall_us - slope * item.calls for item in volleys]
    start = median(starts)
    return EmptyBatchCost(start, slope, tuple(item - start for item in starts))


def compare_clocks(
    volleys: Sequence[ClockPair],
    empty: EmptyBatchCost,
    *,
    device: str = "cuda",
    inside_us: float | None = None,
    checked: int = 0,
    fresh: bool = True,
    short_us: float = SHORT_US,
) -> ClockCheck | None:
    """Both clocks on the same volleys (or `inside_us` against them); None without a volley."""
    if not volleys:
        return None
    outside = [(item.wall_us - empty.wall_us(item.calls)) / item.calls for item in volleys]
    if inside_us is None:
        inside_us = median(item.inside_us for item in volleys)
    # Inputs of gigabytes take tens of milliseconds to write, give or take a few: of one call a
    # volley the empty ones say as little for sure as the others.
    each = median(item.calls for item in volleys)
    off = [item / each for item in empty.off_us]
    outside_us, low_us = median(outside), _surely_at_least(outside, off)
    slack = SLACK_US[device]
    return ClockCheck(
        state=_state(outside_us, low_us, inside_us, len(volleys), slack, short_us),
        outside_us=outside_us,
        outside_low_us=low_us,
        inside_us=inside_us,
        volleys=len(volleys),
        calls=sum(item.calls for item in volleys),
        checked_outputs=checked,
        fresh_inputs=fresh,
    )


def as_failure(check: ClockCheck | None) -> ProfileFailed | None:
    """What a profile with a disputed clock ends in; None for the others."""
    if check is None or check.state != "disputed":
        return None
    text = (
        f"the parent's clock has {check.outside_us:.1f} us a call (99% sure of at least "
        f"{check.outside_low_us:.1f}) over {check.calls} calls in {check.volleys} volleys; the "
        f"process's own events say {check.inside_us:.1f} us"
    )
    found = TimingDisputed(outside_us=check.outside_us, inside_us=check.inside_us, text=text)
    return ProfileFailed(side="candidate", reason="timing_disputed", log=text, timing=found)


def _state(
    outside_us: float,
    low_us: float,
    inside_us: float,
    volleys: int,
    slack_us: float,
    short_us: float,
) -> ClockState:
    if volleys < FEWEST:
        return "unknown"
    short = outside_us < short_us
    slack_us = max(slack_us, SHORT_SLACK_US) if short else slack_us
    if low_us > inside_us * (1 + TOLERANCE) + slack_us:
        return "disputed"
    if short:
        return "too_short"
    if outside_us < inside_us * (1 - TOLERANCE) - slack_us:
        return "outside_shorter"
    return "agrees"


def _surely_at_least(values: Sequence[float], off: Sequence[float]) -> float:
    """Lower end of the 99% interval of the median, by a percentile bootstrap of the values and of
    the errors (`off`) in what was taken off them."""
    generator = np.random.default_rng(0)
    medians = _medians(values, generator)
    if off:
        medians = medians - _medians(off, generator)
    return float(np.quantile(medians, 0.005))


def _medians(values: Sequence[float], generator: np.random.Generator) -> NDArray[np.float64]:
    data = np.asarray(values, float)
    picks = generator.integers(0, len(data), size=(1000, len(data)))
    return np.asarray(np.median(data[picks], axis=1))
