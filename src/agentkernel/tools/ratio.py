"""How much faster is one side than the other, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.profile import Call, Ratio, Timing

Z_95 = 1.959964
"""Two-sided 95% quantile of the normal distribution."""
Z_99 = 2.575829
"""Two-sided 99% quantile of the normal distribution."""
EXACT_T = {Z_95: (12.706, 4.303, 3.182, 2.776), Z_99: (63.657, 9.925, 5.841, 4.604)}
"""Student's t for 1 to 4 degrees of freedom, where the series is too small (any table of t)."""
TRIM = 0.2
"""Share of the paired log ratios cut off on each side before the mean: one hiccup moves nothing."""
MARGIN = 0.01
"""A ratio within 1% of 1 is no difference that anyone should be told of."""
NOISY = 0.03
"""A 95% half-width beyond this says nothing."""
MOST_DEPENDENCE = 0.8
"""Largest lag-1 correlation that the intervals are widened for: by a factor of 3."""


def paired_ratio(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Ratio:
    """Speedup baseline / candidate from the medians of paired blocks, in microseconds.

    `value` is the trimmed geometric mean of the per-round ratios. The 95% and 99% intervals are a
    percentile bootstrap over rounds, widened for few rounds by t(n-1) / z * sqrt(n / (n-1)) as
    Hesterberg advises ("What Teachers Should Know About the Bootstrap", The American Statistician
    69, 2015), and for rounds that resemble their neighbours (`dependence`). One round alone has the
    interval (0, inf): nothing is known about its spread. `call` rests on the 99% interval.
    """
    if len(baseline_us) != len(candidate_us) or not baseline_us:
        raise ValueError(f"{len(baseline_us)} baseline and {len(candidate_us)} candidate blocks")
    logs = np.log(np.asarray(baseline_us, float) / np.asarray(candidate_us, float))
    value = float(_trimmed_mean(logs[None, :])[0])
    rounds = len(logs)
    if rounds == 1:
        return classify(Ratio(value=math.exp(value), low=0.0, high=math.inf))
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, rounds, size=(resamples, rounds))
    means = _trimmed_mean(logs[picks])
    widen = dependence(logs)
    low, high = _interval(means, value, 0.05, widen * small_sample_factor(rounds))
    low99, high99 = _interval(means, value, 0.01, widen * small_sample_factor(rounds, Z_99))
    found = Ratio(value=math.exp(value), low=low, high=high, low99=low99, high99=high99)
    return classify(found)


def classify(ratio: Ratio) -> Ratio:
    """`ratio` with its `call`: "faster" or "slower" where the 99% interval lies wholly beyond 1%,
    else "too_noisy" where the 95% half-width is beyond 3%, else "same"."""
    low99 = 0.0 if ratio.low99 is None else ratio.low99
    high99 = math.inf if ratio.high99 is None else ratio.high99
    call: Call = "too_noisy" if half_width(ratio) > NOISY else "same"
    if low99 > 1 + MARGIN:
        call = "faster"
    elif high99 < 1 - MARGIN:
        call = "slower"
    return ratio.model_copy(update={"call": call})


def geometric_speedup(
    speedups: Sequence[float | None], wrong: Literal["as_baseline", "as_zero"]
) -> float:
    """Geometric mean of speedups, None standing for a candidate that was wrong.

    "as_baseline" counts it as 1.0: the user keeps what they had. "as_zero" counts it as 0, which
    makes the mean 0: no set of problems with a wrong answer has a speedup.
    """
    if not speedups:
        raise ValueError("no speedups: a mean of nothing")
    values = [(1.0 if wrong == "as_baseline" else 0.0) if x is None else x for x in speedups]
    if any(value < 0 for value in values):
        raise ValueError(f"a speedup is not negative: {min(values)}")
    if min(values) == 0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def half_width(ratio: Ratio) -> float:
    """Half the interval's width relative to the value: 0.01 means "known within 1%"."""
    return (ratio.high - ratio.low) / (2.0 * ratio.value)


def small_sample_factor(count: int, z: float = Z_95) -> float:
    """t(count-1) / z * sqrt(count / (count-1)) at the level of `z`, t by its Cornish-Fisher series
    in 1/df, exact for the smallest df.

    Series: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    df = count - 1
    if df <= len(EXACT_T[z]):
        t = EXACT_T[z][df - 1]
    else:
        t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    return t / z * math.sqrt(count / df)


def dependence(logs: NDArray[np.float64]) -> float:
    """How much wider the mean's interval is than for independent rounds: sqrt((1+r)/(1-r)).

    r is the lag-1 correlation of the rounds in their order, outliers drawn in to three robust
    deviations, corrected for its bias -(1+3r)/n (Kendall, Biometrika 41, 1954) and not below 0.
    """
    count = len(logs)
    if count < 5:
        return 1.0
    centred = logs - np.median(logs)
    bound = 3 * 1.4826 * float(np.median(np.abs(centred)))
    drawn = np.clip(centred, -bound, bound)
    drawn = drawn - drawn.mean()
    power = float((drawn**2).sum())
    if power <= 0:
        return 1.0
    seen = float((drawn[1:] * drawn[:-1]).sum()) / power
    r = min(max((count * seen + 1) / (count - 3), 0.0), MOST_DEPENDENCE)
    return math.sqrt((1 + r) / (1 - r))


def _interval(
    means: NDArray[np.float64], value: float, beyond: float, widen: float
) -> tuple[float, float]:
    """The share `beyond` of the bootstrap means left out, half on each side, and widened."""
    low, high = np.quantile(means, (beyond / 2, 1 - beyond / 2))
    return (
        math.exp(min(value, value - widen * (value - float(low)))),
        math.exp(max(value, value + widen * (float(high) - value))),
    )


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
