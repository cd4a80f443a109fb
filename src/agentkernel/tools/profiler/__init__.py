"""The profiler: a candidate timed on a GPU, or estimated where there is none."""

from agentkernel.tools.profiler.rounds import Pace, ProfileSettings
from agentkernel.tools.profiler.session import (
    BaselineTimes,
    ProfileSession,
    QuickTimes,
    measure_baselines,
    profile,
)

__all__ = [
    "BaselineTimes",
    "Pace",
    "ProfileSession",
    "ProfileSettings",
    "QuickTimes",
    "measure_baselines",
    "profile",
]
