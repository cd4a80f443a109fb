"""How do a candidate's kernels compile for a target, at the problem's real shapes?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.problem import ScalarSpec
from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import CompileFailed, LoadFailed, RunFailed
from agentkernel.tools.compile.occupancy import OVER_LIMIT
from agentkernel.tools.problems import LoadedProblem, default_value
from agentkernel.tools.sandbox.session import Worker, WorkerFailed, open_worker

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON

OP = "agentkernel.tools.compile.op:compile_forward"
TIMEOUT_S = 180.0

CompileOutcome = CompileReport | CompileFailed | LoadFailed | RunFailed


def compile_candidate(
    loaded: LoadedProblem,
    source: str,
    target: Target,
    shape_set: int = 0,
    *,
    timeout_s: float = TIMEOUT_S,
    allow_unsandboxed: bool = False,
) -> CompileOutcome:
    """Cross-compile every kernel that one forward of `source` launches; no GPU is needed.

    Runs in a sandboxed worker on tensors without storage. A kernel that compiles and overflows the
    target's limits is part of the report (`fits` False); one that does not compile is a
    CompileFailed with the candidate's line where known.
    """
    return compile_many(
        loaded,
        [source],
        target,
        shape_set,
        timeout_s=timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )[0]


def compile_many(
    loaded: LoadedProblem,
    sources: Sequence[str],
    target: Target,
    shape_set: int = 0,
    *,
    timeout_s: float = TIMEOUT_S,
    allow_unsandboxed: bool = False,
) -> tuple[CompileOutcome, ...]:
    """`compile_candidate` for a family of sources, one outcome each, in one worker.

    A source that kills the worker costs the next one a fresh worker. `timeout_s` holds for each.
    """
    outcomes: list[CompileOutcome] = []
    worker: Worker | None = None
    try:
        for source in sources:
            if worker is None or not worker.alive:
                if worker is not None:
                    worker.close()
                worker = open_worker(
                    device="cpu", interpret=False, allow_unsandboxed=allow_unsandboxed
                )
            reply = worker.call(OP, _payload(loaded, source, target, shape_set), timeout_s)
            outcomes.append(_outcome(reply, loaded.problem.shape_sets[shape_set].label))
    finally:
        if worker is not None:
            worker.close()
    return tuple(outcomes)


def meta_inputs(loaded: LoadedProblem, shape_set: int) -> tuple[object, ...]:
    """The inputs of one call: tensors of the real shapes and strides without storage, scalars."""
    import torch

    if loaded.live_inputs and shape_set == 0:
        return tuple(
            torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
            if isinstance(item, torch.Tensor)
            else item
            for item in loaded.live_inputs
        )
    return tuple(
        default_value(spec, "meta")
        if isinstance(spec, ScalarSpec)
        else torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        for spec in loaded.problem.shape_sets[shape_set].inputs
    )


def _payload(
    loaded: LoadedProblem, source: str, target: Target, shape_set: int
) -> dict[str, object]:
    return {
        "source": source,
        "target": target.model_dump_json(),
        "init_args": loaded.init_args,
        "init_kwargs": loaded.init_kwargs,
        "inputs": meta_inputs(loaded, shape_set),
    }


def _outcome(reply: dict[str, JSON] | WorkerFailed, case: str) -> CompileOutcome:
    if isinstance(reply, WorkerFailed):
        return RunFailed(reason=reply.reason, log=reply.log, case=case)
    if "failed" in reply:
        log = str(reply["log"])
        if reply["failed"] == "load":
            return LoadFailed(log=log)
        return RunFailed(reason="raised", log=log, case=case)
    report = CompileReport.model_validate_json(str(reply["report"]))
    for kernel in report.kernels:
        if kernel.error is not None and not kernel.error.startswith(OVER_LIMIT):
            return CompileFailed(log=f"kernel {kernel.name}: {kernel.error}", line=kernel.line)
    return report
