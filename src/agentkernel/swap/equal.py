"""Whether a module computes what a kernel was verified for: its graph, constants and tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.domain.errors import AgentKernelError, KernelRefused, ProblemError, one_line
from agentkernel.domain.problem import ScalarSpec
from agentkernel.domain.region import Kernel
from agentkernel.storage.source_text import read_literal
from agentkernel.swap.operands import contiguous_strides
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.identity import (
    graph_difference,
    problem_graph,
    signed_modules,
    state_forms,
)
from agentkernel.tools.problem.problems import restore_problem
from agentkernel.tools.problem.regions_arguments import BoundCall, describe
from agentkernel.tools.problem.tools_arguments import identifiers

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.domain.certificate import Certificate, ModuleGraph

NEXT_OPTIMIZE_MODULE = "Next: optimize this module itself."


def matching_parameters(module: nn.Module, kernel: Kernel) -> tuple[str, ...]:
    """The state_dict names of `module` in the order of `kernel.parameters`.

    Raises KernelRefused, with the difference named, where `module` computes something else than
    what the kernel was verified for, on the inputs that it was verified for.
    """
    name = f"Kernel {kernel.sha256[:10]!r} cannot stand for this {type(module).__name__}"
    modes = {item: item.training for item in module.modules()}
    try:
        flat, region = signed_modules(module, _bound(kernel))
    except (ProblemError, RuntimeError, TypeError, ValueError) as error:
        raise KernelRefused(
            f"{name}: it has no graph on the verified inputs: {one_line(error, 200)} "
            f"{NEXT_OPTIMIZE_MODULE}"
        ) from error
    finally:
        for item, training in modes.items():
            item.training = training
    verified = graph_of(kernel.certificate)
    if verified is None and region.signature != kernel.key.signature:
        raise KernelRefused(
            f"{name}: its graph is {region.signature!r}, verified for {kernel.key.signature!r}, "
            f"and the record says no more. {NEXT_OPTIMIZE_MODULE}"
        )
    words = graph_difference(flat, verified) if verified is not None else None
    if words is not None:
        raise KernelRefused(f"{name}: {words}. {NEXT_OPTIMIZE_MODULE}")
    return flat.parameters


def _bound(kernel: Kernel) -> BoundCall:
    """A call on the inputs that the kernel was verified for, without their values."""
    import torch

    specs = kernel.certificate.problem.shape_sets[0].inputs
    strides = kernel.input_strides or (None,) * len(specs)
    inputs: list[object] = []
    for spec, stride in zip(specs, strides, strict=True):
        if isinstance(spec, ScalarSpec):
            inputs.append(read_literal(spec.literal))
            continue
        steps = stride or contiguous_strides(spec.shape)
        dtype = getattr(torch, spec.dtype)
        inputs.append(torch.empty_strided(spec.shape, steps, dtype=dtype, device="meta"))
    names = identifiers([spec.name for spec in specs])
    return BoundCall(tuple(inputs), names, kernel.arguments, kernel.returns)


def graph_of(certificate: Certificate) -> ModuleGraph | None:
    """The graph in the certificate; of an older one, that of the problem whose file it holds."""
    if certificate.graph is not None or certificate.problem.origin == "live":
        return certificate.graph
    try:
        loaded = restore_problem(certificate.problem)
        return problem_graph(loaded, capture(loaded))
    except AgentKernelError:
        return None


def tensor_forms(kernel: Kernel) -> tuple[str, ...] | None:
    """Dtypes, shapes and strides of the verified module's own tensors, sorted; None where the
    certificate does not have them."""
    graph = graph_of(kernel.certificate)
    return None if graph is None else state_forms(graph.text)


def tensor_forms_of(module: nn.Module) -> tuple[str, ...]:
    """As `tensor_forms`, of a module at hand; a tensor under two names counts once."""
    held = {id(value): value for value in module.state_dict(keep_vars=True).values()}
    return tuple(sorted(describe(tuple(held.values()))))


__all__ = ["graph_of", "matching_parameters", "tensor_forms", "tensor_forms_of"]
