"""What must be answered for TorchInductor to write CUDA code where there is no driver?

Everything here happens in a process of its own, before TorchInductor is imported, and is never
undone.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from triton.runtime.driver import driver

from agentkernel.domain.target import Target
from agentkernel.tools.compile.pretend import PretendDriver, cuda_answers, gpu_target

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller


def stand_in_for_driver(target: Target) -> None:
    """Answer torch's and Triton's questions about the device as `target` would."""
    answers = cuda_answers(target) | {
        # Compiling saves and restores the generator's state; there is none, so nothing changes.
        "get_rng_state": lambda device=None: torch.zeros(1, dtype=torch.uint8),
        "set_rng_state": lambda new_state, device=None: None,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0),
        "_lazy_init": lambda: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch._C._conv_determine_backend_memory_format = _as_cudnn_does
    torch.version.cuda = torch.version.cuda or "13.0"
    driver._active = PretendDriver(target, gpu_target(target))
    _leave_the_device_alone()


def _leave_the_device_alone() -> None:
    """A CUDA build makes a real tensor before its first fake one, to have a context."""
    from torch._subclasses import fake_tensor

    if hasattr(fake_tensor, "init_gpu_context"):
        fake_tensor.init_gpu_context = cache(lambda device: None)


def _as_cudnn_does(
    input: torch.Tensor,  # noqa: A002 - torch's own name
    weight: torch.Tensor,
    backend: object,
) -> torch.memory_format:
    """The layout of a convolution's result: channels last where either operand has them so."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(input.ndim)
    if last is None:
        return torch.contiguous_format
    either = any(
        item.is_contiguous(memory_format=last) and not item.is_contiguous()
        for item in (input, weight)
    )
    return last if either else torch.contiguous_format


def skip_passes_that_need_a_device() -> None:
    """Leave out what TorchInductor does on real CUDA tensors.

    That is folding constants in the graph, timing padded matrix products, and tracing the patterns
    of `randperm` indexing.
    """
    from torch._inductor import config
    from torch._inductor.fx_passes import misc_patterns

    config.joint_graph_constant_folding = False
    config.shape_padding = False
    misc_patterns._misc_patterns_init = lambda *args: None  # type: ignore[assignment]


def take_the_first_template() -> None:
    """Where a matrix product may be done in several ways, take TorchInductor's first template, or
    the first way: there is nothing to time them on."""
    from torch._inductor import select_algorithm

    def first(choices: list[ChoiceCaller]) -> list[ChoiceCaller]:
        kind = select_algorithm.TritonTemplateCaller
        templates = [choice for choice in choices if isinstance(choice, kind)]
        return [*templates, *choices][:1]

    select_algorithm.add_preprocessing_fn(first)
