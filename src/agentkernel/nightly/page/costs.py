"""What did a percent cost, over all models and for each of them?"""

from __future__ import annotations

from agentkernel.domain.base import Frozen
from agentkernel.domain.night import ModelRow, NightlyRun, RegionRow
from agentkernel.domain.region import Basis
from agentkernel.nightly.page.speeds import is_faster, mean_speedup, speedup
from agentkernel.nightly.page.wording import span

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
