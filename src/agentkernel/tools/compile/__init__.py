"""Cross-compilation of a candidate's kernels for a GPU that is not in this machine."""

from agentkernel.tools.compile.candidate import compile_candidate, compile_many
from agentkernel.tools.compile.occupancy import Occupancy, occupancy

__all__ = ["Occupancy", "compile_candidate", "compile_many", "occupancy"]
