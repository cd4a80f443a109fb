"""How sure is a share or a mean of few? Pure functions, each with its source."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from agentkernel.domain.base import Frozen

Z95 = 1.959964
"""Half the width of a 95% interval of the standard normal distribution."""
DRAWS = 2000


class Interval(Frozen):
    """A figure with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def text(self) -> str:
        """`0.42 [0.31, 0.54]`."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def signed(self) -> str:
        """`+0.042 [+0.031, +0.054]`, for a difference."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def wilson(hits: int, total: int) -> Interval:
    """The share of `hits` in `total` with Wilson's score interval (Wilson 1927); 0 to 1 for none.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)
    """
    if total == 0:
        return Interval(value=0.0, low=0.0, high=1.0)
    share, spread = hits / total, Z95**2 / total
    middle = share + spread / 2
    half = Z95 * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return Interval(value=share, low=max(min(low, share), 0.0), high=min(max(high, share), 1.0))


def mean_interval(
    values: Sequence[float], seed: int = 0, *, least: float = 0.0, most: float = 1.0
) -> Interval | None:
    """The mean with its percentile bootstrap interval over `values` (Efron 1979), which lie between
    `least` and `most`; None for none."""
    return grouped_interval([(value,) for value in values], seed, least=least, most=most)


def grouped_interval(
    groups: Sequence[Sequence[float]], seed: int = 0, *, least: float = 0.0, most: float = 1.0
) -> Interval | None:
    """The mean of all values, with the bootstrap interval where whole groups are drawn: values of
    one group may hang together (the cluster bootstrap: Davison and Hinkley 1997, section 3.8).

    Where all values are the same nothing can be drawn from them. Then `n` groups leave room for a
    share of others that Wilson's interval has for 0 in `n`, at the far ends of the scale.
    """
    whole = [(math.fsum(group), len(group)) for group in groups if group]
    if not whole:
        return None
    count = len(whole)
    mean = math.fsum(total for total, _ in whole) / sum(size for _, size in whole)
    if len({value for group in groups for value in group}) == 1:
        others = wilson(0, count).high
        low, high = mean - others * (mean - least), mean + others * (most - mean)
    else:
        draw = random.Random(seed)
        means = sorted(_mean(draw.choices(whole, k=count)) for _ in range(DRAWS))
        low, high = means[int(DRAWS * 0.025)], means[int(DRAWS * 0.975)]
    return Interval(value=mean, low=min(low, mean), high=max(high, mean))


def _mean(drawn: Sequence[tuple[float, int]]) -> float:
    return math.fsum(total for total, _ in drawn) / sum(size for _, size in drawn)


__all__ = ["Interval", "grouped_interval", "mean_interval", "wilson"]
