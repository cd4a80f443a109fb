"""Which recorded calls can stand as regions, and what does each cost?"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.profile import OpCost
from agentkernel.domain.target import Target
from agentkernel.nightly.regions.recording import Recording
from agentkernel.nightly.regions.tree import ancestors
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.flat import flat_module
from agentkernel.tools.problem.problems import problem_from_module
from agentkernel.tools.problem.regions_arguments import describe, label_call
from agentkernel.tools.problem.signature import GraphSignature, digest_tensor, random_op, sign_graph
from agentkernel.tools.problem.submodule_call import SubmoduleCall
from agentkernel.tools.roofline.roofline import (
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
        if not call.path and len(children) > 1:
            continue
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
