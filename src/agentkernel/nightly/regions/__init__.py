"""Regions of a model: submodules that are worth a kernel, and their order."""

from agentkernel.nightly.regions.cut import RegionCall, cut_model, region_problem
from agentkernel.nightly.regions.ranking import (
    WaitingRegions,
    WorkOrder,
    budget_of,
    draft_seconds,
    least_share,
    merge_cuts,
)

__all__ = [
    "RegionCall",
    "WaitingRegions",
    "WorkOrder",
    "budget_of",
    "cut_model",
    "draft_seconds",
    "least_share",
    "merge_cuts",
    "region_problem",
]
