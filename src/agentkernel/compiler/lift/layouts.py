"""How the elements of a tensor lie in memory, told by its shape and its strides."""

from __future__ import annotations

from collections.abc import Sequence


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose elements follow each other in order."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """As torch has it: a dimension of size 1 may have any stride."""
    wanted = contiguous_strides(shape)
    return all(
        size == 1 or have == want for size, have, want in zip(shape, strides, wanted, strict=True)
    )


def same_layout(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two strides place every element alike."""
    return all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))


def channels_last(shape: Sequence[int], strides: Sequence[int]) -> str:
    """torch's name for a layout with channels innermost, or ""."""
    names = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
    if len(shape) not in names:
        return ""
    order = [0, *range(2, len(shape)), 1]
    inner = [shape[i] for i in order]
    wanted = dict(zip(order, contiguous_strides(inner), strict=True))
    same = all(shape[i] == 1 or strides[i] == wanted[i] for i in order)
    return names[len(shape)] if same else ""


def stride_order(strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, the outermost in memory first."""
    return tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], dim)))


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose elements follow each other with its dimensions in this order."""
    inner = dict(zip(order, contiguous_strides([shape[dim] for dim in order]), strict=True))
    return tuple(inner[dim] for dim in range(len(shape)))
