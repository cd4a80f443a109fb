"""Figures of a nightly run: speedups, costs and merged regions, and their wording."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import one_line
from agentkernel.domain.formatting import count, interval, percent, span
from agentkernel.domain.nightly import Form, LostJob, ModelRow, NightlyRun, RegionRow
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Basis, Kernel
from agentkernel.tools.speedup import MARGIN, Z_95, Z_99, classify
from agentkernel.workflows.outcome import ratio_against

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


def speedup_ratio(row: ModelRow) -> Ratio | None:
    """`nearest`, or the estimated one on an estimated row; 1 where a timed baseline is handed over,
    both without an interval; None where the model failed or nothing is known."""
    if row.error is not None:
        return None
    if row.basis == "estimated":
        return _exactly(row.estimated_speedup)
    if row.form in BASELINES:
        return _exactly(1.0 if row.form in row.timings else None)
    return nearest(row)


def speedup(row: ModelRow) -> float | None:
    """`speedup_ratio` as a number."""
    found = speedup_ratio(row)
    return found.value if found is not None else None


def mean_ratio(rows: Iterable[ModelRow], basis: Basis) -> Ratio | None:
    """Geometric mean of `speedup_ratio` over the rows of one basis, by the models' weights; those
    without one are left out. Its interval takes the models' own as independent."""
    known = [
        (row.weight, ratio)
        for row in rows
        if row.basis == basis and (ratio := speedup_ratio(row)) is not None and ratio.value > 0
    ]
    total = sum(weight for weight, _ in known)
    if not total:
        return None
    value = math.exp(sum(weight * math.log(ratio.value) for weight, ratio in known) / total)
    return time_ratio(value, 1.0, *(weight / total * _of_ratio(ratio) for weight, ratio in known))


def mean_speedup(rows: Iterable[ModelRow], basis: Basis) -> float | None:
    """`mean_ratio` as a number."""
    found = mean_ratio(rows, basis)
    return found.value if found is not None else None


def kernel_ratio(kernel: Kernel) -> Ratio | None:
    """The measured speedup of a kernel by itself over its fastest baseline, of its certificate."""
    profile = kernel.certificate.profile
    measured = profile is not None and profile.measurements
    return ratio_against(profile.measurements[0], "best") if profile and measured else None


def region_interval(row: RegionRow) -> str:
    """The 95% interval of a region's speedup; its lower end alone in rows that have no other."""
    if row.speedup is None or row.speedup_low is None:
        return ""
    if row.speedup_high is None:
        return f"at least {row.speedup_low:.2f}"
    return interval(Ratio(value=row.speedup, low=row.speedup_low, high=row.speedup_high))


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


def _exactly(value: float | None) -> Ratio | None:
    return None if value is None else time_ratio(value, 1.0)


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


SHOWN_JOBS = 3
"""Names of jobs in a line about many of them."""
SHORT = 10
"""Hex digits of a hash that people see."""
DTYPE = re.compile(r"\b(bfloat16|bf16|float(?:16|32|64)|f(?:16|32|64))\b")
DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}


CUT_SHORT = "cut short: "
"""Before why a region has no kernel, where the time was over before that could be known."""


def lost_text(lost: Sequence[LostJob]) -> list[tuple[str, str]]:
    """What was lost and why, one line a reason: a night that is killed again and again has many of
    the same."""
    by_reason: dict[str, list[LostJob]] = {}
    for item in lost:
        by_reason.setdefault(item.why, []).append(item)
    lines = []
    for why, items in by_reason.items():
        names = list(dict.fromkeys(item.job for item in items))
        shown = ", ".join(names[:SHOWN_JOBS])
        if len(names) > SHOWN_JOBS:
            shown += f" and {len(names) - SHOWN_JOBS} more"
        losses = max(len(items), *(item.again for item in items))
        total = f" ({losses} times in all)" if losses > len(names) else ""
        lines.append((shown, f"{why}{total}"))
    return lines


def region_label(row: RegionRow) -> str:
    """How a change, a test case and a comment name a region."""
    return f"{row.name} ({row.signature})"


def unhelpful(row: ModelRow) -> tuple[str, ...]:
    """Signatures of the kernels that were dropped though the outputs are right with them."""
    return tuple(name for name in row.dropped if name not in row.left_out)


def dropped_text(row: ModelRow) -> Iterator[str]:
    """Which kernels were taken out of a model again: for its outputs, one a cause, or for no
    gain."""
    causes: dict[str, list[str]] = {}
    for name, why in row.left_out.items():
        causes.setdefault(one_line(why, 120), []).append(name)
    for why, names in causes.items():
        yield f"{count(len(names), 'kernel')} left out for the outputs: {why}"
    slow = unhelpful(row)
    if slow:
        why = "the whole is one region" if row.form == "one-region" else "no help end to end"
        yield f"{count(len(slow), 'kernel')} dropped: {why}"


def dtypes_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The floating dtypes that the texts name, each once, by their long names."""
    found = {DTYPES.get(name, name): None for text in texts for name in DTYPE.findall(text)}
    return tuple(sorted(found))


def night_dtypes(night: NightlyRun) -> tuple[str, ...]:
    """The floating dtypes of all models and regions."""
    return dtypes_of([*(row.dtype for row in night.models), *(row.shapes for row in night.regions)])


def caption(night: NightlyRun, basis: Basis, dtypes: tuple[str, ...] = ()) -> str:
    """What must stand beside every figure: GPU or target, dtypes, versions."""
    versions = night.versions
    known = dtypes or night_dtypes(night)
    driver = f" (driver {versions.driver})" if versions.driver else ""
    where = (
        f"Measured on {night.gpu}{driver}"
        if basis == "measured"
        else f"Estimated for {night.target} by its roofline, measured on no GPU"
    )
    kinds = ", ".join(known) if known else "dtypes not recorded"
    return f"{where}; {kinds}; torch {versions.torch}, triton {versions.triton}"


NO_GAIN = "no gain"


class ModelCost(Frozen):
    """`jobs_s`: seconds of jobs on the model's regions, of a shared region its part; `gained`: it
    is surely faster than the faster baseline (estimated: than eager) by more than 1%;
    `percent_s`: seconds of those jobs for each percent of that gain, None without one."""

    model: str
    basis: Basis
    jobs_s: float
    gained: bool
    percent_s: float | None = None

    @property
    def text(self) -> str:
        """`1 min 20 s`, or that nothing was gained."""
        return span(self.percent_s) if self.gained else NO_GAIN


def seconds_per_percent(night: NightlyRun) -> float | None:
    """Seconds of jobs for each percent of the mean speedup; None where nothing was gained."""
    mean = mean_speedup(night.models, night.basis)
    if mean is None or mean <= 1.001 or not night.gpu_s:
        return None
    return night.gpu_s / ((mean - 1) * 100)


def model_costs(night: NightlyRun) -> dict[str, ModelCost]:
    """By the model's name, in the order of the night; a model that failed has none."""
    spent = dict.fromkeys((row.name for row in night.models), 0.0)
    for region in night.regions:
        for model, part in _parts(region).items():
            if model in spent:
                spent[model] += part * region.spent_s
    return {row.name: _cost(row, spent[row.name]) for row in night.models if row.error is None}


def _cost(row: ModelRow, jobs_s: float) -> ModelCost:
    value = speedup(row)
    gained = is_faster(row) and value is not None and value > 1
    return ModelCost(
        model=row.name,
        basis=row.basis,
        jobs_s=round(jobs_s, 3),
        gained=gained,
        percent_s=round(jobs_s / ((value - 1) * 100), 3) if gained and value else None,
    )


def _parts(region: RegionRow) -> dict[str, float]:
    """Each model's part of a region, 0 to 1: by the share of its uses, else by its calls."""
    by_share: dict[str, float] = {}
    by_calls: dict[str, float] = {}
    for use in region.uses:
        by_share[use.model] = by_share.get(use.model, 0.0) + use.share
        by_calls[use.model] = by_calls.get(use.model, 0.0) + use.calls
    weights = by_share if sum(by_share.values()) > 0 else by_calls
    total = sum(weights.values())
    return {model: weight / total for model, weight in weights.items()}


class MergedRegions(Frozen):
    """`submodules` that the `regions` stand for. `within` and `across` are those of them that need
    no kernel of their own: another submodule of the same model has it, or another model."""

    regions: int
    submodules: int
    within: int
    across: int

    @property
    def words(self) -> str:
        """One sentence; "" where there are no regions."""
        if not self.regions:
            return ""
        text = f"{count(self.regions, 'region')} {'stands' if self.regions == 1 else 'stand'} for "
        text += count(self.submodules, "submodule")
        saved = self.within + self.across
        if not saved:
            return f"{text}; none is shared."
        return (
            f"{text}: {percent(saved / self.submodules)} of them need no kernel of their own, "
            f"{percent(self.within / self.submodules)} shared within a model, "
            f"{percent(self.across / self.submodules)} across models."
        )


def merged_regions(night: NightlyRun) -> MergedRegions:
    """Of the regions that the night worked on or meant to."""
    models = [len({use.model for use in row.uses}) for row in night.regions]
    submodules = sum(len(row.uses) for row in night.regions)
    return MergedRegions(
        regions=len(night.regions),
        submodules=submodules,
        within=submodules - sum(models),
        across=sum(models) - len(night.regions),
    )


SINCE = "; since then: "
"""Between why a kernel was withdrawn and what its region came to, in a row's reason."""


def is_replaced(row: RegionRow) -> bool:
    """A kernel was withdrawn, and its region has one again."""
    return row.status == "withdrawn" and row.sha256 is not None


def withdrawn_text(row: RegionRow) -> str:
    """`kernel 1a2b3c4d5e: rejected at correctness; in its place 6f708192a3 (1.2x over eager)`."""
    cause, _, after = row.reason.partition(SINCE)
    old = f"kernel {row.parent[:SHORT]}" if row.parent else "its kernel"
    return f"{old}: {one_line(cause, 160) or 'it does not verify'}; {_in_its_place(row, after)}"


def _in_its_place(row: RegionRow, after: str) -> str:
    status, _, why = one_line(after, 160).partition(" (")
    around = f" ({why.removesuffix(')')})" if why else ""
    if row.sha256 is None:
        told = {"": "", "kept": ", the baseline is kept"}.get(status, f", {status}")
        return f"nothing in its place{told}{around}"
    if row.sha256 == row.parent:
        return f"in its place the same kernel, drafted and judged again{around}"
    return f"in its place {row.sha256[:SHORT]}{around}"
