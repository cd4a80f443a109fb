"""Memory layouts of inputs: plain, strided, expanded, unaligned, sliced, permuted.

Expanded inputs have stride 0, unaligned ones lie off the 16-byte boundary, sliced ones are parts
of wider rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    import torch

Layout = Literal[
    "contiguous", "strided", "stepped", "expanded", "offset", "sliced", "permuted", "swapped"
]
MARGIN = 5
"""Elements by which the rows that inputs are slices of are wider."""
MIDDLE_MARGIN = 2
"""Rows by which dimensions between the first and the last one are longer."""


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies within its storage: shape, stride and offset in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def arranged(values: Sequence[object], layout: Layout) -> list[object]:
    """`values` laid out as asked; "expanded" repeats the first row. Scalars as they are."""
    if layout == "strided":
        return strided(values)
    if layout == "stepped":
        return strided(values, turned=True)
    if layout == "expanded":
        return _each(values, _expanded)
    if layout == "offset":
        return _each(values, _offset)
    if layout == "sliced":
        return _each(values, _sliced)
    if layout in ("permuted", "swapped"):
        return permuted(values, last=layout == "permuted")
    return list(values)


def strided(values: Sequence[object], turned: bool = False) -> list[object]:
    """The same values off their usual places: transposed, and in turns every other element of a
    larger tensor from its second on, which the first one is where `turned`. Scalars as they
    are."""
    found: list[object] = []
    for value in values:
        if not hasattr(value, "shape"):
            found.append(value)
            continue
        tensor = cast("torch.Tensor", value)
        turned = not turned and tensor.ndim > 1
        found.append(_transposed(tensor) if turned else _every_other(tensor))
    return found


def permuted(values: Sequence[object], last: bool = True) -> list[object]:
    """The same values, of three and more dimensions in turns with the second dimension last in
    memory, as channels are, and with the middle ones swapped, as heads and places are; channels
    first where `last`."""
    found: list[object] = []
    for value in values:
        if getattr(value, "ndim", 0) < 3:
            found.append(value)
            continue
        tensor = cast("torch.Tensor", value)
        rest = range(2, tensor.ndim)
        order = (0, *rest, 1) if last else (0, 2, 1, *rest[1:])
        if tensor.ndim == 3 and not last:
            order = (1, 0, 2)
        found.append(in_order(tensor, order))
        last = not last
    return found


def dense_order(value: object) -> tuple[int, ...] | None:
    """The dimensions of a tensor from the one with the largest stride on, where it fills its memory
    in another order than the usual one; None otherwise."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return None
    steps = value.stride()
    order = tuple(sorted(range(value.ndim), key=lambda dim: (-steps[dim], dim)))
    return order if value.permute(order).is_contiguous() else None


def in_order(value: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same values with their dimensions in memory in this order."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return value.permute(*order).contiguous().permute(*back)


def placement(value: torch.Tensor) -> Placement:
    """Where `value` lies in its storage."""
    return Placement(tuple(value.shape), tuple(value.stride()), int(value.storage_offset()))


def whole(value: torch.Tensor) -> torch.Tensor:
    """All of the storage that `value` lies in, flat: gaps and the room before it as well."""
    return value.new_empty(0).set_(value.untyped_storage())


def placed(flat: torch.Tensor, where: Placement) -> torch.Tensor:
    """The tensor at `where` of a flat one."""
    return flat.as_strided(where.shape, where.stride, where.offset)


def copied(value: torch.Tensor) -> torch.Tensor:
    """A copy that lies in its storage as `value` does in its own."""
    return placed(whole(value).clone(), placement(value))


def _each(values: Sequence[object], change: object) -> list[object]:
    return [change(value) if hasattr(value, "shape") else value for value in values]  # type: ignore[operator]


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def _every_other(value: torch.Tensor) -> torch.Tensor:
    if value.ndim == 0:
        return value
    *outer, inner = value.shape
    room = value.new_zeros((*outer, 2 * inner + 1))
    view = room[..., 1::2]
    view.copy_(value)
    return view


def _expanded(value: torch.Tensor) -> torch.Tensor:
    """The first slice along the first dimension longer than 1, with stride 0 there."""
    long = [dim for dim, size in enumerate(value.shape) if size > 1]
    if not long:
        return value
    return value.narrow(long[0], 0, 1).clone().expand(value.shape)


def _sliced(value: torch.Tensor) -> torch.Tensor:
    """Of wider rows, and of more of them along every dimension but the first: no one step leads
    from each row to the next."""
    if value.ndim == 0:
        return value
    room = value.new_zeros(
        [
            size + (MARGIN if dim == value.ndim - 1 else MIDDLE_MARGIN if dim else 0)
            for dim, size in enumerate(value.shape)
        ]
    )
    view = room[tuple(slice(size) for size in value.shape)]
    view.copy_(value)
    return view


def _offset(value: torch.Tensor) -> torch.Tensor:
    room = value.new_zeros(value.numel() + 1)
    view = room[1:].view(value.shape)
    view.copy_(value)
    return view
