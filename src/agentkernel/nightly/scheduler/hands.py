"""What ranks the regions of a real night?"""

from __future__ import annotations

from functools import partial

from agentkernel.nightly.scheduler.question import Ranking


def default_ranking(models: int) -> Ranking:
    """By the share of the time and the headroom, as the regions of so many models were cut."""
    from agentkernel.nightly.regions import WorkOrder, budget_of, least_share, merge_cuts

    order = partial(WorkOrder, least_share=least_share(models))
    return Ranking(merge_cuts, order, budget_of)
