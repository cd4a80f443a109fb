"""How does a submodule of a model become a problem like any other?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.errors import ProblemError
from agentkernel.tools.capture import capture
from agentkernel.tools.problems import LoadedProblem, problem_from_module
from agentkernel.tools.regions.arguments import label
from agentkernel.tools.regions.recording import record_inputs
from agentkernel.tools.regions.signature import sign
from agentkernel.tools.regions.source import ModelSource

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class RegionCall:
    """One submodule on the inputs that its model gives it.

    `parameters`: its own state_dict names in the order of the graph.
    """

    problem: LoadedProblem
    signature: str
    parameters: tuple[str, ...]


def region_problem(
    loaded: ModelSource,
    path: str,
    *,
    signature: str | None = None,
    calls: Sequence[Sequence[object]] | None = None,
    device: str = "cpu",
) -> RegionCall:
    """The submodule at `path` as a live problem on the CPU, with its own weights and real inputs.

    `calls`: positional inputs of its different calls; None runs the model once on `device` and sees
    them. `signature` picks among calls on several shapes; None takes the first. Raises ProblemError
    for an unknown path, a submodule that is not called, or a signature that no call has.
    """
    module = loaded.build(device=device)
    if path and path not in dict(module.named_modules()):
        raise ProblemError(
            f"Model {loaded.spec.name!r} has no submodule {path!r}. Expected a path such as "
            f"{_some_path(module)!r}. Next: cut the model again."
        )
    found = record_inputs(loaded, module, path, device) if calls is None else calls
    seen: list[str] = []
    for inputs in found:
        region = _region_call(module.get_submodule(path), inputs)
        if signature in (None, region.signature):
            return region
        seen.append(f"{region.signature} on {label(inputs)}")
    raise ProblemError(
        f"Submodule {path!r} of {loaded.spec.name!r} has no call of signature {signature or 'any'}."
        f" Found: {'; '.join(seen) or 'none with positional tensors'}. Next: cut the model again."
    )


def _region_call(module: nn.Module, inputs: Sequence[object]) -> RegionCall:
    import torch

    own = copy.deepcopy(module).to("cpu")
    values = tuple(item.cpu() if isinstance(item, torch.Tensor) else item for item in inputs)
    problem = problem_from_module(own, values)
    signed = sign(capture(problem), own, values)
    return RegionCall(problem, signed.signature, signed.parameters)


def _some_path(module: nn.Module) -> str:
    return next((name for name, _ in module.named_modules() if name), "")
