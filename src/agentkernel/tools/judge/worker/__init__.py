"""Operations of the sandboxed worker for the judge: build, load weights, call, differentiate.

The worker never sees the reference output. Inputs, weights and outputs lie in memory that the
parent shares.
"""

from agentkernel.tools.judge.worker.build import (
    adopt,
    build,
    disturb,
    look,
    method,
    parameter_roles,
    rest,
    turn,
)
from agentkernel.tools.judge.worker.calls import run
from agentkernel.tools.judge.worker.compiled import give_kernels, take_kernels
from agentkernel.tools.judge.worker.gradients import differentiate

__all__ = [
    "adopt",
    "build",
    "differentiate",
    "disturb",
    "give_kernels",
    "look",
    "method",
    "parameter_roles",
    "rest",
    "run",
    "take_kernels",
    "turn",
]
