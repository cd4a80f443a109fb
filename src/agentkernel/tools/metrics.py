"""How do the figures of many problems become one? Pure functions, each with its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

THRESHOLDS = (0.8, 1.0, 1.2, 1.5, 2.0, 4.0)
"""The p of fast_p."""


def pass_at_k(samples: int, correct: int, k: int) -> float | None:
    """The chance that one of k samples drawn without replacement is correct; None for too few.

    1 - C(n - c, k) / C(n, k): Chen et al., arXiv 2107.03374.
    """
    if not 1 <= k <= samples:
        return None
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def best_at_k(values: Sequence[float], k: int) -> float | None:
    """The expected largest of k values drawn without replacement; invalid samples come in as 0.

    sum over j of C(j - 1, k - 1) / C(n, k) times the j-th smallest: speedup@k of ParEval
    (Nichols et al., arXiv 2401.12554).
    """
    n = len(values)
    if not 1 <= k <= n:
        return None
    ordered = sorted(values)
    return sum(comb(j, k - 1) * value for j, value in enumerate(ordered)) / comb(n, k)


def fast_p(speedups: Sequence[float], p: float) -> float | None:
    """The share that is correct and faster than p times the baseline; wrong ones come in as 0.

    Ouyang et al., arXiv 2502.10517.
    """
    if not speedups:
        return None
    return sum(value > p for value in speedups) / len(speedups)


def geometric_mean(values: Sequence[float]) -> float | None:
    """The n-th root of the product of the positive values; None where there is none."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None for none."""
    return math.fsum(values) / len(values) if values else None


def median(values: Sequence[float]) -> float | None:
    """The middle value, the mean of the two middle ones where the count is even; None for none."""
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
