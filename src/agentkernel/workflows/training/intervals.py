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


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval | None:
    """The mean with its percentile bootstrap interval over `values` (Efron 1979); None for none.

    Where all values are the same end of the scale (0 or 1) nothing can be drawn from them: then
    the interval is Wilson's.
    """
    if not values:
        return None
    count = len(values)
    mean = math.fsum(values) / count
    if all(value == values[0] for value in values) and values[0] in (0.0, 1.0):
        return wilson(count if values[0] else 0, count)
    draw = random.Random(seed)
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(DRAWS))
    low, high = means[int(DRAWS * 0.025)], means[int(DRAWS * 0.975)]
    return Interval(value=mean, low=min(low, mean), high=max(high, mean))


__all__ = ["Interval", "mean_interval", "wilson"]
