"""What ranks the regions of a real night?"""

from __future__ import annotations

from agentkernel.workflows.nights.agenda import Ranking


def ranking() -> Ranking:
    """By the share of the time and the headroom, as the regions were cut."""
    from agentkernel.tools.regions import budget_of, merge_cuts, order_of_work

    return Ranking(merge_cuts, order_of_work, budget_of)
