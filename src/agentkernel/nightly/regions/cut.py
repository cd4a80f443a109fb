"""Cut of a model into regions, each with its cost and as a problem of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.problem import DataStructure
from agentkernel.domain.profile import OpCost
from agentkernel.domain.region import Basis, ModelCut, Refused, Region, RegionUse
from agentkernel.domain.target import Target
from agentkernel.nightly.regions.ranking import ancestors, by_score, headroom, heaviest, nearest
from agentkernel.nightly.regions.recording import (
    Recording,
    measure,
    record,
    record_inputs,
)
from agentkernel.tools.problem.call_arguments import (
    BoundCall,
    SubmoduleCall,
    UnboundCall,
    bind_call,
    describe,
    flat_module,
    is_flat,
    label_call,
    returned,
)
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.graph_identity import (
    GraphSignature,
    digest_tensor,
    random_op,
    sign_graph,
)
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.roofline.model import (
    LAUNCH_US,
    LIBRARY_SHARE,
    analyse,
    bandwidth,
    estimate_eager,
    flop_time_us,
    is_matmul,
)

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.nightly.regions.recording import ModelSource


MOST_OPS = 64
"""A region of more device ops takes minutes to capture, and no one kernel stands for it."""
REPEATS = 3
REPEATED_PART = 0.8
"""Where so many calls of one composite submodule make so much of its ops, the part is the region:
a kernel for it is used as often, and is drafted in a fraction of the time."""


@dataclass(frozen=True)
class CostedCall:
    """A captured submodule: its identity, and one call's times in microseconds, estimated."""

    signed: GraphSignature
    name: str
    shapes: str
    eager_us: float
    bound_us: float


def costed_calls(
    module: nn.Module, recording: Recording, target: Target
) -> tuple[list[tuple[SubmoduleCall, CostedCall]], list[tuple[str, str]]]:
    """What each call's submodule costs, or (path, why it is no region). Each graph is captured
    once, however many submodules run it."""
    known: dict[object, CostedCall | str] = {}
    taken: list[tuple[SubmoduleCall, CostedCall]] = []
    refused: dict[tuple[str, str], None] = {}
    children = dict(module.named_modules())
    for call in recording.calls:
        child = children[call.path]
        found: CostedCall | str | None = call.refused or _too_large(call, recording, children)
        if found is None:
            found = _costed(child, call, target, known)
        if isinstance(found, str):
            refused[call.path, found] = None
        else:
            taken.append((call, found))
    return taken, list(refused)


def _costed(
    module: nn.Module, call: SubmoduleCall, target: Target, known: dict[object, CostedCall | str]
) -> CostedCall | str:
    try:
        state = _state(module)
    except Exception as error:  # noqa: BLE001 - whatever a kind of tensor raises that cannot be read
        return f"its tensors cannot be read: {type(error).__name__}: {one_line(error, 200)}"
    key = (type(module), call.specs, call.trace, state)
    if key not in known:
        known[key] = _capture(module, call, target)
    return known[key]


def _state(module: nn.Module) -> tuple[str, ...]:
    """Names and descriptions of the state, and the values of tensors outside of it."""
    import torch

    state = module.state_dict(keep_vars=True)
    texts = [
        f"{name}={describe((value,))[0]}"
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    ]
    for path, child in module.named_modules():
        prefix = f"{path}." if path else ""
        own = {**vars(child), **child._buffers}
        texts += [
            f"{prefix}{name}={digest_tensor(value)}"
            for name, value in own.items()
            if isinstance(value, torch.Tensor) and f"{prefix}{name}" not in state
        ]
    return tuple(texts)


def _too_large(
    call: SubmoduleCall, recording: Recording, children: Mapping[str, nn.Module]
) -> str | None:
    """Why a submodule is left to its parts before it is captured; None where it is not."""
    inside: dict[tuple[object, ...], list[SubmoduleCall]] = {}
    for other in recording.calls:
        if call.path in ancestors(other.path) and next(children[other.path].children(), None):
            key = (type(children[other.path]), other.specs, other.trace)
            inside.setdefault(key, []).append(other)
    ops = len(call.costs)
    for group in inside.values():
        repeats = sum(item.calls for item in group) // call.calls
        if repeats >= REPEATS and repeats * len(group[0].costs) >= REPEATED_PART * ops:
            return f"it runs {group[0].path} and its like {repeats} times: the part is the region"
    if ops > MOST_OPS:
        return f"it runs {ops} ops, more than the {MOST_OPS} that a region may have"
    return None


def _capture(module: nn.Module, call: SubmoduleCall, target: Target) -> CostedCall | str:
    """The costs of one call, or why it is no region."""
    try:
        bare = flat_module(_without_memory(module), call.bound)
        problem = problem_from_module(bare, call.arguments)
        captured = capture(problem)
        reason = _refused_graph(captured)
        if reason is not None:
            return reason
        return CostedCall(
            signed=sign_graph(captured, module, call.bound),
            name=type(module).__name__,
            shapes=label_call(call.bound),
            eager_us=estimate_eager(captured, target).time_us,
            bound_us=analyse(captured, target).bound_us,
        )
    except ProblemError as error:
        return one_line(error)
    except Exception as error:  # noqa: BLE001 - any library's module: one that cannot be read is no region
        return f"it cannot be captured: {type(error).__name__}: {one_line(error, 200)}"


def _refused_graph(captured: Captured) -> str | None:
    if captured.mutated_inputs:
        return f"it writes to its input {captured.mutated_inputs[0]!r}"
    if captured.mutated_buffers:
        return f"it writes to its buffer {captured.mutated_buffers[0]!r}"
    if captured.side_effect is not None:
        return f"it sets its attribute {captured.side_effect!r}"
    drawn = random_op(captured)
    return f"it draws random numbers with {drawn}" if drawn else None


def _without_memory(module: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers have no values; one with plain tensors keeps them all."""
    import torch
    from torch import nn

    plain = (value for item in module.modules() for value in vars(item).values())
    if any(isinstance(value, torch.Tensor) for value in plain):
        return module
    memo: dict[int, object] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)


def op_time_us(cost: OpCost, target: Target) -> float:
    """One library op in eager PyTorch on the target's roofline."""
    compute_us = flop_time_us(cost, target, "eager") / (LIBRARY_SHARE if is_matmul(cost) else 1.0)
    return max(cost.bytes_moved / (bandwidth(target) * 1e3), compute_us) + LAUNCH_US


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
    """Every submodule of `loaded` that a kernel could stand for, with its share of the forward, and
    the model itself ("") unless it is too large or computes what one of its submodules does.

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
    # Of the model itself the estimate may count what its forward does not run.
    members = [replace(item, total_us=min(item.total_us, whole_us)) for item in members]
    regions = build_regions(loaded.spec.name, members, whole_us, basis)
    reasons = tuple(
        Refused(model=loaded.spec.name, path=path, reason=reason) for path, reason in refused
    )
    return ModelCut(
        model=loaded.spec.name,
        basis=basis,
        time_us=time_us,
        regions=regions,
        refused=reasons,
        shapes=next((label_call(call.bound) for call in recording.calls if not call.path), ""),
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
    outer: list[RegionMember] = []
    grouped: dict[str, list[RegionMember]] = {}
    for member in members:
        same = paths[member.costed.signed.signature]
        if nearest(member.path, same) is None and (member.path or len(same) == 1):
            outer.append(member)
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
