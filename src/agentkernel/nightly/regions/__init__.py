"""Regions of a model: submodules that are worth a kernel, and their order."""

from agentkernel.nightly.regions.cut import RegionCall, cut_model, region_problem
from agentkernel.nightly.regions.ranking import (
    WaitingRegions,
    WorkOrder,
    budget_of,
    chosen_regions,
    least_share,
    merge_cuts,
    order_of_work,
)

__all__ = [
    "RegionCall",
    "WaitingRegions",
    "WorkOrder",
    "budget_of",
    "chosen_regions",
    "cut_model",
    "least_share",
    "merge_cuts",
    "order_of_work",
    "region_problem",
]
