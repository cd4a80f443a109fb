"""Statistics of speedups: paired ratios with intervals, pass@k, fast_p and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.profile import Call, Ratio, Timing

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
    return ratio.evolve(call=call)


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
