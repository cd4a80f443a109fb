"""Which kernel did one run make for a module?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.errors import KernelRefused
from agentkernel.domain.region import Kernel, KernelKey
from agentkernel.swap.equal import graph_of
from agentkernel.tools.certificate.certificate import read_certificate

if TYPE_CHECKING:
    import torch
    from torch import nn

Strides = tuple[tuple[int, ...] | None, ...]


def strides_of(values: Sequence[object]) -> Strides:
    """What `Kernel.input_strides` holds for these inputs: in elements, None for a scalar."""
    import torch

    return tuple(tuple(x.stride()) if isinstance(x, torch.Tensor) else None for x in values)


def parameter_strides(module: nn.Module, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """What `Kernel.parameter_strides` holds for a module's own tensors, in elements."""
    held: dict[str, torch.Tensor] = {}
    held.update(module.named_parameters(remove_duplicate=False))
    held.update(module.named_buffers(remove_duplicate=False))
    return tuple(tuple(held[name].stride()) for name in names)


def kernel_of_run(certificate: Path) -> Kernel:
    """The drop-in of the run that wrote `certificate`.

    Raises RunNotFound for a certificate that is missing or edited, KernelRefused where it has no
    drop-in, or no record of what its module computes.
    """
    found = read_certificate(certificate)
    if found.candidate_source is None or found.candidate_sha256 is None:
        raise KernelRefused(
            f"Run {found.run!r} kept a baseline: there is no kernel to put in. "
            "Expected one that found a drop-in. Next: use the module as it is."
        )
    profile, verdict = found.profile, found.verdict
    gpu = profile.measured_on if profile is not None else None
    graph = graph_of(found)
    if graph is None:
        raise KernelRefused(
            f"Run {found.run!r} does not say what its module computes: no other module can be "
            "compared with it. Expected a record of the graph. Next: optimize the module again."
        )
    return Kernel(
        key=KernelKey(
            signature=graph.signature,
            gpu=gpu or f"estimated:{found.target}",
            torch=found.versions.torch,
            triton=found.versions.triton,
            precision=verdict.precision if verdict is not None else "strict",
        ),
        sha256=found.candidate_sha256,
        source=found.candidate_source,
        parameters=graph.parameters,
        input_strides=graph.input_strides,
        arguments=found.problem.arguments,
        parameter_strides=graph.parameter_strides,
        certificate=found,
        run=found.run,
        created=found.created,
        basis=found.basis,
    )
