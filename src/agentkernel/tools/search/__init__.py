"""Which of many schedules is the best one, by compiling or by measuring?"""

from agentkernel.tools.search.measuring import MeasuringSearcher
from agentkernel.tools.search.static import StaticSearcher, best_first

__all__ = ["MeasuringSearcher", "StaticSearcher", "best_first"]
