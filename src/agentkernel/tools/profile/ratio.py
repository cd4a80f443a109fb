"""How much faster is one side than the other, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.profile import Ratio, Timing

Z_95 = 1.959964
"""Two-sided 95% quantile of the normal distribution."""
TRIM = 0.2
"""Share of the paired log ratios cut off on each side before the mean: one hiccup moves nothing."""


def paired_ratio(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Ratio:
    """Speedup baseline / candidate from the medians of paired blocks, in microseconds.

    `value` is the trimmed geometric mean of the per-round ratios. The 95% interval is a percentile
    bootstrap over rounds, widened for few rounds by t(n-1) / z * sqrt(n / (n-1)) as Hesterberg
    advises ("What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015).
    One round alone has the interval (0, inf): nothing is known about its spread.
    """
    if len(baseline_us) != len(candidate_us) or not baseline_us:
        raise ValueError(f"{len(baseline_us)} baseline and {len(candidate_us)} candidate blocks")
    logs = np.log(np.asarray(baseline_us, float) / np.asarray(candidate_us, float))
    value = float(_trimmed_mean(logs[None, :])[0])
    rounds = len(logs)
    if rounds == 1:
        return Ratio(value=math.exp(value), low=0.0, high=math.inf)
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, rounds, size=(resamples, rounds))
    low, high = np.quantile(_trimmed_mean(logs[picks]), (0.025, 0.975))
    widen = small_sample_factor(rounds)
    return Ratio(
        value=math.exp(value),
        low=math.exp(min(value, value - widen * (value - float(low)))),
        high=math.exp(max(value, value + widen * (float(high) - value))),
    )


def half_width(ratio: Ratio) -> float:
    """Half the interval's width relative to the value: 0.01 means "known within 1%"."""
    return (ratio.high - ratio.low) / (2.0 * ratio.value)


def small_sample_factor(count: int) -> float:
    """t(count-1) / z * sqrt(count / (count-1)) at 95%, t by its Cornish-Fisher series in 1/df.

    Series: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    df, z = count - 1, Z_95
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    return t / z * math.sqrt(count / df)


def summarise(samples_us: Sequence[float], do_bench_us: float | None = None) -> Timing:
    """Median, 10th and 90th percentile over single calls, in microseconds."""
    p10, median, p90 = np.quantile(np.asarray(samples_us, float), (0.1, 0.5, 0.9))
    return Timing(
        median_us=float(median),
        p10_us=float(p10),
        p90_us=float(p90),
        samples=len(samples_us),
        do_bench_us=do_bench_us,
    )


def _trimmed_mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row without its `TRIM` smallest and largest share. [rows, n] -> [rows]."""
    cut = int(rows.shape[1] * TRIM)
    ordered = np.sort(rows, axis=1)
    middle: NDArray[np.float64] = ordered[:, cut : rows.shape[1] - cut].mean(axis=1)
    return middle
