"""Into which regions is a model's forward cut, and how is one of them a problem like any other?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.region import Basis, ModelCut, Refused, Region, RegionUse
from agentkernel.domain.structure import DataStructure
from agentkernel.domain.target import Target
from agentkernel.nightly.regions.candidates import CostedCall, costed_calls, op_time_us
from agentkernel.nightly.regions.merge import by_score, headroom
from agentkernel.nightly.regions.recording import record, record_inputs
from agentkernel.nightly.regions.source import ModelSource
from agentkernel.nightly.regions.timeline import measure
from agentkernel.nightly.regions.tree import heaviest, nearest
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.flat import flat_module, is_flat, returned
from agentkernel.tools.problem.problems import LoadedProblem, problem_from_module
from agentkernel.tools.problem.regions_arguments import (
    BoundCall,
    UnboundCall,
    bind_call,
    label_call,
)
from agentkernel.tools.problem.signature import sign_graph
from agentkernel.tools.problem.submodule_call import SubmoduleCall

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class RegionCall:
    """One submodule on the inputs that its model gives it.

    `parameters`: its own state_dict names in the order of the graph. `arguments` and `returns`: how
    the problem's inputs lie in the call's arguments, and its outputs in what the call returns;
    None where they are the same.
    """

    problem: LoadedProblem
    signature: str
    parameters: tuple[str, ...]
    arguments: DataStructure | None = None
    returns: DataStructure | None = None


@dataclass(frozen=True)
class RegionMember:
    """One submodule's calls on one kind of arguments, and all that they cost in one forward."""

    call: SubmoduleCall
    costed: CostedCall
    total_us: float

    @property
    def path(self) -> str:
        """Of the submodule."""
        return self.call.path


def cut_model(loaded: ModelSource, target: Target, *, device: str = "cpu") -> ModelCut:
    """Every submodule of `loaded` that a kernel could stand for, with its share of the forward.

    On "cpu" times are estimated on the roofline of `target`; on a GPU eager's are measured with
    torch.profiler, and `bound_us` is the target's. Raises ProblemError where the model's forward
    raises.
    """
    module = loaded.build(device=device)
    recording = record(loaded, module, device)
    costed, refused = costed_calls(module, recording, target)
    basis: Basis = "estimated" if device == "cpu" else "measured"
    if device == "cpu":
        members = [RegionMember(call, item, call.calls * item.eager_us) for call, item in costed]
        whole_us = max(
            sum(op_time_us(cost, target) for cost in recording.costs), _heaviest(members)
        )
        time_us = whole_us
    else:
        timeline = measure(module, loaded.make_call(device), device)
        members = [
            RegionMember(call, item, timeline.calls.get((call.path, call.specs), 0.0))
            for call, item in costed
        ]
        whole_us = max(timeline.device_us, _heaviest(members))
        time_us = max(timeline.wall_us, whole_us)
    regions = build_regions(loaded.spec.name, members, whole_us, basis)
    reasons = tuple(
        Refused(model=loaded.spec.name, path=path, reason=reason) for path, reason in refused
    )
    return ModelCut(
        model=loaded.spec.name, basis=basis, time_us=time_us, regions=regions, refused=reasons
    )


def region_problem(
    loaded: ModelSource,
    path: str,
    *,
    signature: str | None = None,
    calls: Sequence[Sequence[object]] | None = None,
    device: str = "cpu",
) -> RegionCall:
    """The submodule at `path` as a live problem on the CPU, with its own weights and real inputs.

    `calls`: positional arguments of its different calls, on the CPU; None runs the model once on
    `device` and sees them. Where they are nested, the problem takes their tensors alone, by
    position. `signature` picks among calls on several shapes; None takes the first.
    Raises ProblemError for an unknown path, a submodule that is not called, or a signature that no
    call has.
    """
    module = loaded.build(device=device)
    if path and path not in dict(module.named_modules()):
        raise ProblemError(
            f"Model {loaded.spec.name!r} has no submodule {path!r}. Expected a path such as "
            f"{_some_path(module)!r}. Next: cut the model again."
        )
    child = module.get_submodule(path)
    if calls is None:
        found = record_inputs(loaded, module, path, device)
    else:
        found = tuple(_bound(child, args) for args in calls)
    seen: list[str] = []
    for bound in found:
        region = _region_call(child, bound)
        if signature in (None, region.signature):
            return region
        seen.append(f"{region.signature} on {label_call(bound)}")
    raise ProblemError(
        f"Submodule {path!r} of {loaded.spec.name!r} has no call of signature {signature or 'any'}."
        f" Found: {'; '.join(seen) or 'none on plain data'}. Next: cut the model again."
    )


def build_regions(
    model: str, members: Sequence[RegionMember], whole_us: float, basis: Basis
) -> tuple[Region, ...]:
    """One region for each signature, by falling score; `share` is the part of `whole_us`."""
    paths: dict[str, set[str]] = {}
    for member in members:
        paths.setdefault(member.costed.signed.signature, set()).add(member.path)
    outer = [
        member
        for member in members
        if nearest(member.path, paths[member.costed.signed.signature]) is None
    ]
    grouped: dict[str, list[RegionMember]] = {}
    for member in outer:
        grouped.setdefault(member.costed.signed.signature, []).append(member)
    parts = _parts(outer)
    return by_score(
        [
            _region(model, group, parts.get(key, ()), whole_us, basis)
            for key, group in grouped.items()
        ]
    )


def _region(
    model: str, group: Sequence[RegionMember], parts: Sequence[str], whole_us: float, basis: Basis
) -> Region:
    first = group[0].costed
    eager_us = sum(item.total_us for item in group) / sum(item.call.calls for item in group)
    uses = tuple(
        RegionUse(
            model=model,
            path=item.path,
            calls=item.call.calls,
            parameters=item.costed.signed.parameters,
            share=item.total_us / whole_us if whole_us else 0.0,
        )
        for item in group
    )
    share = min(1.0, sum(use.share for use in uses))
    room = headroom(first.bound_us, eager_us)
    return Region(
        signature=first.signed.signature,
        name=first.name,
        ops=first.signed.ops,
        shapes=first.shapes,
        uses=uses,
        basis=basis,
        eager_us=eager_us,
        bound_us=first.bound_us,
        share=share,
        headroom=room,
        score=share * room,
        parts=tuple(parts),
        device_ops=len(group[0].call.costs),
    )


def _parts(members: Sequence[RegionMember]) -> dict[str, tuple[str, ...]]:
    """Signature -> signatures of the regions next below it, in the order of the forward."""
    at: dict[str, list[str]] = {}
    for member in members:
        at.setdefault(member.path, []).append(member.costed.signed.signature)
    found: dict[str, dict[str, None]] = {}
    for member in members:
        above = nearest(member.path, at)
        for signature in at[above] if above is not None else ():
            found.setdefault(signature, {})[member.costed.signed.signature] = None
    return {key: tuple(item for item in value if item != key) for key, value in found.items()}


def _heaviest(members: Sequence[RegionMember]) -> float:
    """The most that regions of which none lies in another take together."""
    weights: dict[str, float] = {}
    for member in members:
        weights[member.path] = weights.get(member.path, 0.0) + member.total_us
    return heaviest(weights)


def _region_call(module: nn.Module, bound: BoundCall) -> RegionCall:
    own = copy.deepcopy(module).to("cpu")
    problem = problem_from_module(flat_module(own, bound), bound.inputs)
    signed = sign_graph(capture(problem), own, bound)
    return RegionCall(problem, signed.signature, signed.parameters, bound.structure, bound.returns)


def _bound(module: nn.Module, args: Sequence[object]) -> BoundCall:
    """Given arguments, and how the outputs lie, which only a forward can tell."""
    import torch

    bound = bind_call(module, args, {})
    if isinstance(bound, UnboundCall):
        raise ProblemError(
            f"{type(module).__name__} cannot be a region on these arguments: {bound.reason}. "
            "Expected tensors and plain data. Next: give the calls that the model makes."
        )
    with torch.no_grad():
        apart = returned(copy.deepcopy(module).to("cpu").eval()(*args))
    if apart is None or is_flat(apart.structure):
        return bound
    return replace(bound, returns=apart.structure)


def _some_path(module: nn.Module) -> str:
    return next((name for name, _ in module.named_modules() if name), "")
