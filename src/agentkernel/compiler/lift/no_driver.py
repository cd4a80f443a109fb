"""Stand-ins with which TorchInductor writes CUDA code where there is no driver.

Applied in TorchInductor's process, before it is imported, and never undone. Tensor's own methods
ask for a device guard in their Python bindings, also for tensors without storage; the ATen
operators below them do not, so indexing and copies are sent there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import EllipsisType, SimpleNamespace
from typing import TYPE_CHECKING

import torch
from triton.runtime.driver import driver

from agentkernel.domain.target import Target
from agentkernel.tools.compile.recording import PretendDriver, cuda_answers, gpu_target

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller


Index = None | bool | int | slice | EllipsisType | torch.Tensor


def send_bindings_to_aten() -> None:
    """`tensor[index]`, `copy_` and `contiguous` by ATen in this process, from now on.

    They are replaced on the class: a mode is not active within the calls that it sends on, and
    decompositions run in those.
    """
    own = torch.Tensor.__getitem__

    def item(self: torch.Tensor, index: object) -> torch.Tensor:
        items = index if isinstance(index, tuple) else (index,)
        return indexed(self, items) if all(map(_is_plain, items)) else own(self, index)  # type: ignore[arg-type]

    def copy(self: torch.Tensor, other: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        copied: torch.Tensor = torch.ops.aten.copy_.default(self, other, non_blocking)
        return copied

    def contiguous(
        self: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format
    ) -> torch.Tensor:
        if self.is_contiguous(memory_format=memory_format):
            return self
        cloned: torch.Tensor = torch.ops.aten.clone.default(self, memory_format=memory_format)
        return cloned

    torch.Tensor.contiguous = contiguous  # type: ignore[assignment, method-assign]
    torch.Tensor.__getitem__ = item  # type: ignore[assignment, method-assign]
    torch.Tensor.copy_ = copy  # type: ignore[assignment, method-assign]


def _is_plain(item: object) -> bool:
    if isinstance(item, torch.Tensor):
        return item.dtype not in (torch.bool, torch.uint8)
    kinds = int | torch.SymInt | slice | EllipsisType | None
    return isinstance(item, kinds) and not isinstance(item, bool)


def indexed(tensor: torch.Tensor, items: Sequence[Index]) -> torch.Tensor:
    """`tensor[*items]` for whole numbers, slices, None, `...` and tensors of whole numbers."""
    gathered: dict[int, torch.Tensor] = {}
    dim = 0
    for item in _without_ellipsis(items, tensor.ndim):
        if item is None:
            tensor = torch.ops.aten.unsqueeze.default(tensor, dim)
            dim += 1
        elif isinstance(item, slice):
            if item != slice(None):
                tensor = torch.ops.aten.slice.Tensor(
                    tensor, dim, item.start, item.stop, 1 if item.step is None else item.step
                )
            dim += 1
        elif isinstance(item, torch.Tensor):
            gathered[dim] = item
            dim += 1
        else:
            tensor = torch.ops.aten.select.int(tensor, dim, item)
    if not gathered:
        return tensor
    places = [gathered.get(place) for place in range(max(gathered) + 1)]
    found: torch.Tensor = torch.ops.aten.index.Tensor(tensor, places)
    return found


def _without_ellipsis(items: Sequence[Index], rank: int) -> list[Index]:
    place = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if place is None:
        return list(items)
    taken = sum(item is not None and item is not Ellipsis for item in items)
    return [*items[:place], *[slice(None)] * (rank - taken), *items[place + 1 :]]


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
