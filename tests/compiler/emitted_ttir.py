"""The Triton IR of a drop-in's kernels, as a GPU that is not here would get them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from agentkernel.tools.compile.recording import record_launches
from tests.compiler.cross_compile import imported

GPU = GPUTarget("cuda", 90, 32)


def ttir_of(text: str, inputs: Sequence[object]) -> list[str]:
    """The IR of each launch of `ModelNew()` in `text`, its tensors on meta: any size is free."""
    given = [_meta(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    module = imported(text, head="")
    with torch.device("meta"), torch.no_grad(), record_launches(GPU) as launches:
        module.ModelNew()(*given)
    return [_ttir(launch.source, dict(launch.options)) for launch in launches]


def _meta(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _ttir(source, given: dict[str, object]) -> str:  # type: ignore[no-untyped-def]
    """The frontend's IR, before any pass has changed it."""
    from triton._C.libtriton import ir

    backend = make_backend(GPU)
    options = backend.parse_options(given)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    made = source.make_ir(
        GPU, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    return str(made)
