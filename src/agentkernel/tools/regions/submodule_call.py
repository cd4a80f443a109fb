"""What is known about a submodule's calls in one forward?"""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.domain.profile import OpCost


@dataclass(frozen=True)
class SubmoduleCall:
    """Calls of the submodule at `path` on arguments of one description.

    `arguments` has no values. `trace` is a digest of the ops that ran, their constants, shapes and
    operands, parameters by their names in the submodule: equal digests of one class compute the
    same. `costs` are those of the ops of one call. `refused` says why no region can stand here.
    """

    path: str
    arguments: tuple[object, ...]
    specs: tuple[str, ...]
    trace: str
    costs: tuple[OpCost, ...]
    calls: int = 1
    refused: str | None = None
