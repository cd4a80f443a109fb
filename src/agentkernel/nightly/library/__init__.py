"""Which verified kernels are known, and what came out of the nights that made them?"""

from agentkernel.nightly.library.library import LAST, LAST_GREEN, Library, Measured
from agentkernel.nightly.library.night_rows import ModelLine, NightLine
from agentkernel.nightly.library.opening import default_library
from agentkernel.nightly.library.pruning import Pruned, PruneRule
from agentkernel.nightly.library.rows import KernelLine, StoredKernel

__all__ = [
    "LAST",
    "LAST_GREEN",
    "KernelLine",
    "Library",
    "Measured",
    "ModelLine",
    "NightLine",
    "PruneRule",
    "Pruned",
    "StoredKernel",
    "default_library",
]
