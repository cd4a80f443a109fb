"""What ranks the regions of a real night?"""

from __future__ import annotations

from agentkernel.workflows.nights.question import Ranking


def ranking() -> Ranking:
    """By the share of the time and the headroom, as the regions were cut."""
    from agentkernel.tools.regions import WorkOrder, budget_of, merge_cuts

    return Ranking(merge_cuts, WorkOrder, budget_of)
