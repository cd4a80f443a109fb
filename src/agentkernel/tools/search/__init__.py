"""Search for the best of many schedules, by compiling or by measuring."""

from agentkernel.tools.search.measuring import MeasuringSearcher
from agentkernel.tools.search.static import StaticSearcher, best_first

__all__ = ["MeasuringSearcher", "StaticSearcher", "best_first"]
