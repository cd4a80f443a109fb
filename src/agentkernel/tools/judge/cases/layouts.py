"""Memory layouts of inputs: plain, strided, expanded, unaligned, sliced, permuted, overlapping.

Expanded inputs have stride 0, unaligned ones lie off the 16-byte boundary, sliced ones are parts
of wider rows, rows of overlapping ones begin within the row before. How wide, how far and how
often is drawn: a file that takes the usual numbers alone shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    import torch

Layout = Literal[
    "contiguous",
    "strided",
    "stepped",
    "expanded",
    "offset",
    "sliced",
    "overlapping",
    "permuted",
    "swapped",
]
MARGINS = (1, 5, 14, 33)
"""Elements by which the rows that inputs are slices of may be wider."""
ALIGNED = 16
"""Of such elements are the rows a multiple, in every second case."""
MIDDLE_MARGIN = 2
"""Rows by which dimensions between the first and the last one are longer."""
STEPS = (2, 3, 5)
MOST_ROWS_BEFORE = 7
"""An unaligned input begins within so many rows of its memory."""


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies within its storage: shape, stride and offset in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def arranged(values: Sequence[object], layout: Layout, seed: int = 0) -> list[object]:
    """`values` laid out as asked, by numbers drawn from `seed`; "expanded" repeats the first row,
    and rows of "overlapping" ones share values. Scalars as they are."""
    chance = random.Random(seed)
    if layout == "strided":
        return strided(values, chance.choice(STEPS))
    if layout == "stepped":
        return strided(values, chance.choice(STEPS), turned=True)
    if layout == "expanded":
        return _each(values, _expanded)
    if layout == "offset":
        return _each(values, lambda value: _offset(value, chance))
    if layout == "sliced":
        return _each(values, lambda value: _sliced(value, chance))
    if layout == "overlapping":
        return _each(values, lambda value: _overlapping(value, chance))
    if layout in ("permuted", "swapped"):
        return permuted(values, last=layout == "permuted")
    return list(values)


def strided(values: Sequence[object], step: int = 2, turned: bool = False) -> list[object]:
    """The same values off their usual places: transposed, and in turns one of every `step` elements
    of a larger tensor from its second on, which the first one is where `turned`. Scalars as they
    are."""
    found: list[object] = []
    for value in values:
        if not hasattr(value, "shape"):
            found.append(value)
            continue
        tensor = cast("torch.Tensor", value)
        turned = not turned and tensor.ndim > 1
        found.append(_transposed(tensor) if turned else _apart(tensor, step))
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


def _each(values: Sequence[object], change: Callable[[torch.Tensor], torch.Tensor]) -> list[object]:
    return [
        change(cast("torch.Tensor", value)) if hasattr(value, "shape") else value
        for value in values
    ]


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def _apart(value: torch.Tensor, step: int) -> torch.Tensor:
    if value.ndim == 0:
        return value
    *outer, inner = value.shape
    room = value.new_zeros((*outer, step * inner + 1))
    view = room[..., 1::step]
    view.copy_(value)
    return view


def _expanded(value: torch.Tensor) -> torch.Tensor:
    """The first slice along the first dimension longer than 1, with stride 0 there."""
    long = [dim for dim, size in enumerate(value.shape) if size > 1]
    if not long:
        return value
    return value.narrow(long[0], 0, 1).clone().expand(value.shape)


def _sliced(value: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """Of wider rows, and of more of them along every dimension but the first: no one step leads
    from each row to the next."""
    if value.ndim == 0:
        return value
    margin = chance.choice(MARGINS)
    wide = value.shape[-1] + margin
    wide += -wide % ALIGNED if chance.random() < 0.5 else 0
    room = value.new_zeros(
        [*(size + MIDDLE_MARGIN * (dim > 0) for dim, size in enumerate(value.shape[:-1])), wide]
    )
    first = chance.choice((0, margin))
    view = room[
        (*(slice(size) for size in value.shape[:-1]), slice(first, first + value.shape[-1]))
    ]
    view.copy_(value)
    return view


def _overlapping(value: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """The windows of one long row: each begins fewer elements behind the one before than it has."""
    if value.ndim < 2 or value.shape[-1] < 2:
        return value
    step = chance.randrange(1, value.shape[-1])
    steps = [step]
    for size in reversed(value.shape[1:-1]):
        steps.insert(0, steps[0] * size)
    strides = (*steps, 1)
    length = 1 + sum((size - 1) * by for size, by in zip(value.shape, strides, strict=True))
    flat = value.reshape(-1)
    room = flat.new_zeros(max(length, 1))
    room.copy_(flat[: len(room)])
    return room.as_strided(value.shape, strides)


def _offset(value: torch.Tensor, chance: random.Random) -> torch.Tensor:
    width = value.shape[-1] if value.ndim else 1
    first = 2 * chance.randrange(MOST_ROWS_BEFORE * max(width, 1) // 2 + 1) + 1
    room = value.new_zeros(value.numel() + first)
    view = room[first:].view(value.shape)
    view.copy_(value)
    return view
