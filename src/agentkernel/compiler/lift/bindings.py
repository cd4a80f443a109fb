"""How do decompositions index and copy CUDA tensors where this torch has no CUDA?

Tensor's own methods ask for a device guard in their Python bindings, also for tensors without
storage; the ATen operators below them do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

import torch

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
