"""Worker process that writes a kernel for a problem's file with TorchInductor."""

from __future__ import annotations

from multiprocessing.connection import Connection

from agentkernel.compiler.drop_in.envelope import eval_only
from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import (
    GraphRecord,
    NotLifted,
    find_variant,
    record_graph,
)
from agentkernel.compiler.lift.inductor_process import generate_code, prepare_process
from agentkernel.domain.target import Target
from agentkernel.runtime.worker import WorkerFailed, serve
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.problem.specialise import specialise
from agentkernel.training.judged_problems import POLICY
from agentkernel.training.worker_pool import WorkerRequest, WrittenCode

LIBRARY_ALONE = "nothing is left to Triton"
"""How the lifter begins to say that every step is a library call."""
TEMPLATES = "gemm_triton"
"""The variant that writes matrix products itself."""


def write(line: Connection, target: str) -> None:
    """Serve code, for the GPU that is here or else for `target`, a Target in JSON."""
    pretended = prepare_process(Target.model_validate_json(target))
    serve(line, WorkerRequest, lambda request: _written(request.path, pretended))


def _written(path: str, pretended: bool) -> WrittenCode | WorkerFailed:
    """As `torch.compile` writes it; where that calls the library alone, by its own templates."""
    loaded = load_problem(path)
    captured = capture(loaded)
    graph = record_graph(specialise(captured))
    differs = eval_only(loaded, captured)
    found = _lifted(loaded, captured, graph, "default", pretended, differs)
    if isinstance(found, WorkerFailed) and found.reason.startswith(LIBRARY_ALONE):
        found = _lifted(loaded, captured, graph, TEMPLATES, pretended, differs)
    return found


def _lifted(
    loaded: LoadedProblem,
    captured: Captured,
    graph: GraphRecord,
    variant: str,
    pretended: bool,
    differs_in_training: bool,
) -> WrittenCode | WorkerFailed:
    code = generate_code(graph, find_variant(variant), pretended)
    if isinstance(code, NotLifted):
        return WorkerFailed(reason=code.reason)
    source = lift(code, loaded, captured, differs_in_training=differs_in_training)
    if isinstance(source, NotLifted):
        return WorkerFailed(reason=source.reason)
    refused = check_policy(source.text, POLICY)
    if refused is not None:
        return WorkerFailed(reason=f"policy {POLICY!r}: {refused.text}")
    return WrittenCode(answer=source.text, kernels=source.kernels, variant=variant)
