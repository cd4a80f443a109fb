"""What does a night over a zoo say in the morning?"""

from agentkernel.tools.nights.compare import compare_nights
from agentkernel.tools.nights.files import NightPaths, write_night
from agentkernel.tools.nights.record import read_night_file

__all__ = ["NightPaths", "compare_nights", "read_night_file", "write_night"]
