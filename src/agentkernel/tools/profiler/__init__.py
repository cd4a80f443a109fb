"""How fast is a candidate, measured where a GPU is and estimated where none is?"""

from agentkernel.tools.profiler.rounds import Pace
from agentkernel.tools.profiler.session import (
    BaselineTimes,
    ProfileSession,
    QuickTimes,
    measure_baselines,
    profile,
)
from agentkernel.tools.profiler.settings import ProfileSettings

__all__ = [
    "BaselineTimes",
    "Pace",
    "ProfileSession",
    "ProfileSettings",
    "QuickTimes",
    "measure_baselines",
    "profile",
]
