"""Which parts of a model are worth a kernel, and in which order?"""

from agentkernel.nightly.regions.cut import RegionCall, cut_model, region_problem
from agentkernel.nightly.regions.merge import merge_cuts
from agentkernel.nightly.regions.rank import (
    WaitingRegions,
    budget_of,
    chosen_regions,
    least_share,
    order_of_work,
)
from agentkernel.nightly.regions.work_order import WorkOrder

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
