"""What would the kernels of a candidate need on a GPU that is not here?"""

from agentkernel.tools.compile.candidate import compile_candidate, compile_many
from agentkernel.tools.compile.occupancy import Occupancy, occupancy

__all__ = ["Occupancy", "compile_candidate", "compile_many", "occupancy"]
