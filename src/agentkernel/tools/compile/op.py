"""What does the sandboxed worker do to cross-compile a candidate? (Runs there, never here.)"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.tools.compile.kernels import compile_launches
from agentkernel.tools.compile.library import record_library
from agentkernel.tools.compile.pretend import gpu_target, pretend_gpu
from agentkernel.tools.compile.recorder import Launch, record_launches
from agentkernel.tools.op_cost import FILLS

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState

CLASS_NAME = "ModelNew"
MAX_LOG_CHARACTERS = 6000


def compile_forward(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` without storage, note what its forward launches, compile that.

    `payload`: source, target (as JSON), init_args, init_kwargs, inputs (meta tensors and scalars).
    The reply holds either "report" or "failed" ("load" or "run") with the log.
    """
    source = str(payload["source"])
    target = Target.model_validate_json(str(payload["target"]))
    gpu = gpu_target(target)
    inputs = cast("Sequence[object]", payload["inputs"])
    with pretend_gpu(target), torch.no_grad():
        try:
            model = _build(payload, source, state)
        except Exception:  # noqa: BLE001 - the candidate may raise anything
            return _failed("load")
        with record_launches(gpu) as launches, record_library() as library:
            try:
                model(*inputs)
            except Exception:  # noqa: BLE001 - the candidate may raise anything
                return _failed("run")
        kernels = compile_launches(launches, target, gpu, source, state.scratch)
    report = CompileReport(
        target=target.name,
        kernels=tuple(kernels),
        library_ops=tuple(cost.op for cost in library if cost.op not in FILLS),
        library_costs=tuple(library),
    )
    return {"report": report.model_dump_json()}


def record_forward(model: nn.Module, inputs: Sequence[object], target: Target) -> list[Launch]:
    """The launches of one trusted module on meta inputs, not compiled."""
    with pretend_gpu(target), torch.no_grad(), record_launches(gpu_target(target)) as launches:
        model(*inputs)
    return launches


def _build(payload: Mapping[str, object], source: str, state: WorkerState) -> nn.Module:
    """On meta; a constructor that needs numbers is run on the CPU, and its tensors moved."""
    module = state.execute(source)
    args = cast("Sequence[object]", payload["init_args"])
    kwargs = cast("Mapping[str, object]", payload["init_kwargs"])
    create = getattr(module, CLASS_NAME)
    try:
        built = create(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        with torch.device("cpu"):
            built = create(*args, **kwargs)
    return cast("nn.Module", built.to("meta").eval())


def _failed(stage: str) -> dict[str, JSON]:
    return {"failed": stage, "log": traceback.format_exc(limit=-8)[-MAX_LOG_CHARACTERS:]}
