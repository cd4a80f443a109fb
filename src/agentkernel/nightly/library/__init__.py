"""Library of verified kernels, and of the nightly runs that made them."""

from agentkernel.nightly.library.database import default_library
from agentkernel.nightly.library.library import (
    LAST,
    LAST_GREEN,
    KernelMeasurement,
    Library,
    PruneResult,
    PruneRule,
)
from agentkernel.nightly.library.rows import KernelSummary, StoredKernel

__all__ = [
    "LAST",
    "LAST_GREEN",
    "KernelMeasurement",
    "KernelSummary",
    "Library",
    "PruneResult",
    "PruneRule",
    "StoredKernel",
    "default_library",
]
