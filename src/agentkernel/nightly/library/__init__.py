"""Which verified kernels are known, and what came out of the nights that made them?"""

from agentkernel.nightly.library.library import LAST, LAST_GREEN, KernelMeasurement, Library
from agentkernel.nightly.library.night_rows import ModelSummary, NightSummary
from agentkernel.nightly.library.opening import default_library
from agentkernel.nightly.library.pruning import PruneResult, PruneRule
from agentkernel.nightly.library.rows import KernelSummary, StoredKernel

__all__ = [
    "LAST",
    "LAST_GREEN",
    "KernelMeasurement",
    "KernelSummary",
    "Library",
    "ModelSummary",
    "NightSummary",
    "PruneResult",
    "PruneRule",
    "StoredKernel",
    "default_library",
]
