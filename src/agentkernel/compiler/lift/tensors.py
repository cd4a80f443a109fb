"""How is a tensor of TorchInductor's wrapper written in the forward, and a view of one?"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.compiler.drop_in.output_layouts import in_order_text
from agentkernel.compiler.lift.steps import Unliftable, number, numbers


@dataclass(frozen=True)
class ForwardTensor:
    """A tensor: its expression in the forward, its layout, and whether it starts its memory."""

    text: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    own: bool

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other in order."""
        return is_contiguous(self.shape, self.strides)


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


def allocation(shape: Sequence[int], strides: Sequence[int], dtype: str, device: str) -> str:
    """Fresh memory of this form."""
    tail = f"device={device}, dtype={dtype}"
    if is_contiguous(shape, strides):
        return f"torch.empty({tuple(shape)}, {tail})"
    memory = channels_last(shape, strides)
    if memory:
        return f"torch.empty({tuple(shape)}, {tail}, memory_format={memory})"
    return f"torch.empty_strided({tuple(shape)}, {tuple(strides)}, {tail})"


def view_of(base: ForwardTensor, call: ast.Call) -> ForwardTensor:
    """`reinterpret_tensor(base, shape, strides, offset)`, as plainly as torch can say it."""
    shape, strides = numbers(call.args[1]), numbers(call.args[2])
    offset = number(call.args[3]) if len(call.args) > 3 else 0
    text = _view_text(base, shape, strides, offset)
    return ForwardTensor(text, shape, strides, base.own and offset == 0)


def _view_text(
    base: ForwardTensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> str:
    whole = math.prod(shape) == math.prod(base.shape) and offset == 0
    if whole and shape == base.shape and same_layout(shape, strides, base.strides):
        return base.text
    turned = base.shape[::-1] == shape and same_layout(shape, strides, base.strides[::-1])
    if whole and len(shape) == 2 and turned:
        return f"{base.text}.t()"
    if whole and base.contiguous and is_contiguous(shape, strides):
        return f"{base.text}.view({', '.join(map(str, shape))})"
    if not offset:
        return f"torch.as_strided({base.text}, {shape}, {strides})"
    start = str(offset) if base.own else f"{base.text}.storage_offset() + {offset}"
    return f"torch.as_strided({base.text}, {shape}, {strides}, {start})"


def with_strides(stored: ForwardTensor, wanted: tuple[int, ...]) -> str:
    """The expression that gives `stored` the strides `wanted`, whatever layout it really has;
    a tensor that has them is not copied."""
    if is_contiguous(stored.shape, wanted):
        return f"{stored.text}.contiguous()"
    memory = channels_last(stored.shape, wanted)
    if memory:
        return f"{stored.text}.contiguous(memory_format={memory})"
    order = tuple(sorted(range(len(wanted)), key=lambda dim: (-wanted[dim], dim)))
    if is_contiguous([stored.shape[dim] for dim in order], [wanted[dim] for dim in order]):
        return in_order_text(stored.text, order)
    raise Unliftable(f"a library result of layout {wanted} is asked for")
