"""What does the sandboxed worker do to cross-compile a candidate? (Runs there, never here.)"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from agentkernel.domain.profile import CompileReport, OpCost
from agentkernel.domain.structure import DataStructure
from agentkernel.domain.target import Target
from agentkernel.tools.compile.kernels import compile_launches
from agentkernel.tools.compile.library import record_library
from agentkernel.tools.compile.pretend import gpu_target, pretend_gpu
from agentkernel.tools.compile.recorder import Launch, record_launches
from agentkernel.tools.problem.tools_arguments import called_flat
from agentkernel.tools.roofline.op_cost import FILLS

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState

CLASS_NAME = "ModelNew"
MAX_LOG_CHARACTERS = 6000
MAX_REAL_BYTES = 1 << 30
NO_VALUES = re.compile(r"meta tensor|\bon meta\b|_local_scalar_dense|DataDependent", re.I)
"""How torch says that a tensor without storage was asked for a value."""


@dataclass(frozen=True)
class Recorded:
    """What one forward would have done on a GPU."""

    launches: list[Launch]
    library: list[OpCost]


def compile_forward(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` without storage, note what its forward launches, compile that.

    `payload`: source, target (as JSON), init_args, init_kwargs, arguments, inputs (meta tensors and
    scalars).
    The reply holds either "report" or "failed" ("load" or "run") with the log. A forward that reads
    values is tried again on real zeros, where they are small.
    """
    target = Target.model_validate_json(str(payload["target"]))
    inputs = cast("Sequence[object]", payload["inputs"])
    with pretend_gpu(target), torch.no_grad():
        found = _record(payload, state, target, inputs, "meta")
        if isinstance(found, dict) and NO_VALUES.search(str(found["log"])) and _small(inputs):
            again = _record(payload, state, target, [_zeros(item) for item in inputs], "cpu")
            found = found if isinstance(again, dict) else again
        if isinstance(found, dict):
            return found
        kernels = compile_launches(
            found.launches, target, gpu_target(target), str(payload["source"]), state.scratch
        )
    report = CompileReport(
        target=target.name,
        kernels=tuple(kernels),
        library_ops=tuple(cost.op for cost in found.library if cost.op not in FILLS),
        library_costs=tuple(found.library),
    )
    return {"report": report.model_dump_json()}


def _record(
    payload: Mapping[str, object],
    state: WorkerState,
    target: Target,
    inputs: Sequence[object],
    device: str,
) -> Recorded | dict[str, JSON]:
    """One forward on tensors of `device`: its launches and torch ops, or why there are none."""
    try:
        model = _build(payload, state, device)
    except Exception:  # noqa: BLE001 - the candidate may raise anything
        return _failed("load")
    with record_launches(gpu_target(target)) as launches, record_library() as library:
        try:
            model(*inputs)
        except Exception:  # noqa: BLE001 - the candidate may raise anything
            return _failed("run")
    return Recorded(launches, library)


def record_forward(model: nn.Module, inputs: Sequence[object], target: Target) -> list[Launch]:
    """The launches of one trusted module on meta inputs, not compiled."""
    with pretend_gpu(target), torch.no_grad(), record_launches(gpu_target(target)) as launches:
        model(*inputs)
    return launches


def _build(payload: Mapping[str, object], state: WorkerState, device: str) -> nn.Module:
    """On `device`; a constructor that needs numbers is run on the CPU, and its tensors moved."""
    module = state.execute(str(payload["source"]))
    args = cast("Sequence[object]", payload["init_args"])
    kwargs = cast("Mapping[str, object]", payload["init_kwargs"])
    create = getattr(module, CLASS_NAME)
    try:
        with torch.device(device):
            built = create(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        with torch.device("cpu"):
            built = create(*args, **kwargs)
    made = cast("nn.Module", built.to(device).eval())
    return called_flat(made, cast("DataStructure | None", payload.get("arguments")))


def _small(inputs: Sequence[object]) -> bool:
    sizes = [item.nbytes for item in inputs if isinstance(item, torch.Tensor)]
    return sum(sizes) <= MAX_REAL_BYTES


def _zeros(item: object) -> object:
    if not isinstance(item, torch.Tensor):
        return item
    with torch.device("cpu"):
        return torch.zeros(item.shape, dtype=item.dtype)


def _failed(stage: str) -> dict[str, JSON]:
    return {"failed": stage, "log": traceback.format_exc(limit=-8)[-MAX_LOG_CHARACTERS:]}
