"""How fast is a model in the form that is handed over, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Iterable

from agentkernel.domain.night import Form, ModelRow, NightlyRun
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Basis
from agentkernel.tools.ratio import MARGIN, Z_95, Z_99, classify

BASELINES: frozenset[Form] = frozenset({"eager", "torch.compile"})
Z_90TH = 1.281552
"""90th percentile of the standard normal distribution."""
MEDIAN_FACTOR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of normal samples."""


def form_time_us(row: ModelRow) -> float | None:
    """Microseconds of one forward as it is handed over, by the row's own basis; None if unknown."""
    if row.basis == "estimated":
        return row.estimated_us
    timing = row.timings.get(row.form)
    return timing.median_us if timing is not None else None


def nearest(row: ModelRow) -> Ratio | None:
    """The measured speedup over the faster of eager and torch.compile; None where that is what is
    handed over."""
    if row.form in BASELINES:
        return None
    found = [item for item in (row.vs_eager, row.vs_compile) if item is not None]
    return min(found, key=lambda item: item.value, default=None)


def speedup(row: ModelRow) -> float | None:
    """`nearest` as a number, or the estimated one on an estimated row; 1 where a timed baseline is
    handed over; None where the model failed or nothing is known."""
    if row.error is not None:
        return None
    if row.basis == "estimated":
        return row.estimated_speedup
    if row.form in BASELINES:
        return 1.0 if row.form in row.timings else None
    found = nearest(row)
    return found.value if found is not None else None


def mean_speedup(rows: Iterable[ModelRow], basis: Basis) -> float | None:
    """Geometric mean of `speedup` over the rows of one basis, by the models' weights; those without
    one are left out."""
    known = [
        (row.weight, value)
        for row in rows
        if row.basis == basis and (value := speedup(row)) is not None and value > 0
    ]
    total = sum(weight for weight, _ in known)
    if not total:
        return None
    return math.exp(sum(weight * math.log(value) for weight, value in known) / total)


def is_faster(row: ModelRow) -> bool:
    """Surely faster than the faster baseline by more than 1%, or so estimated."""
    if row.error is not None:
        return False
    if row.basis == "estimated":
        return row.form not in BASELINES and (row.estimated_speedup or 0.0) > 1 + MARGIN
    found = nearest(row)
    if found is None:
        return False
    return (found.low if found.low99 is None else found.low99) > 1 + MARGIN


def log_error(row: ModelRow) -> float:
    """Standard error of the logarithm of `form_time_us`: the larger of what the samples' spread and
    what the intervals of the ratios to the baselines say; inf where a ratio is not known at all."""
    timing = row.timings.get(row.form)
    ratios = (row.vs_eager, row.vs_compile)
    return max(_of_timing(timing), *(_of_ratio(item) for item in ratios if item), 0.0)


def time_ratio(old_us: float, new_us: float, *errors: float) -> Ratio:
    """Old time / new time; `errors` are independent standard errors of the logarithms."""
    value, error = old_us / new_us, math.hypot(*errors)
    low, high = _around(value, Z_95 * error)
    low99, high99 = _around(value, Z_99 * error)
    return classify(Ratio(value=value, low=low, high=high, low99=low99, high99=high99))


def same_devices(before: NightlyRun, after: NightlyRun, basis: Basis) -> bool:
    """True where times of both nights can be compared: one model of GPU, or one target."""
    if basis == "estimated":
        return before.target == after.target
    return before.gpu is not None and before.gpu == after.gpu


def _around(value: float, half: float) -> tuple[float, float]:
    if math.isinf(half):
        return 0.0, math.inf
    return value * math.exp(-half), value * math.exp(half)


def _of_timing(timing: Timing | None) -> float:
    if timing is None or timing.p10_us <= 0:
        return 0.0
    deviation = math.log(timing.p90_us / timing.p10_us) / (2 * Z_90TH)
    return MEDIAN_FACTOR * deviation / math.sqrt(max(timing.samples, 1))


def _of_ratio(ratio: Ratio) -> float:
    low, high, z = ratio.low, ratio.high, Z_95
    if ratio.low99 is not None and ratio.high99 is not None:
        low, high, z = ratio.low99, ratio.high99, Z_99
    if low <= 0 or math.isinf(high):
        return math.inf
    return math.log(high / low) / (2 * z)
