"""What is known about a submodule's calls in one forward?"""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.domain.profile import OpCost
from agentkernel.tools.problem.regions_arguments import BoundCall


@dataclass(frozen=True)
class SubmoduleCall:
    """Calls of the submodule at `path` on arguments of one description.

    The inputs of `bound` have no values. `trace` is a digest of the ops that ran, their constants,
    shapes and operands, parameters by their names in the submodule: equal digests of one class
    compute the same. `costs` are those of the ops of one call. `refused` says why no region can
    stand here.
    """

    path: str
    bound: BoundCall
    specs: tuple[str, ...]
    trace: str
    costs: tuple[OpCost, ...]
    calls: int = 1
    refused: str | None = None

    @property
    def arguments(self) -> tuple[object, ...]:
        """What the region's problem takes."""
        return self.bound.inputs
