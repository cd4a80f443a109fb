"""Which convolution is a node, its padding and strides written out?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.reading import (
    argument,
    numbers,
    op_of,
    optional_tensor_argument,
    rank,
    static_sizes,
    tensor_argument,
)

aten = torch.ops.aten
CONVOLUTION_NAME = re.compile(
    r"conv(?P<transposed>_transpose)?(?P<n>[123])d\.(default|padding|input)"
)
CONVOLUTION_OPS = {1: aten.conv1d.default, 2: aten.conv2d.default, 3: aten.conv3d.default}
TRANSPOSED_OPS = {1: aten.conv_transpose1d.default, 2: aten.conv_transpose2d.input,
              3: aten.conv_transpose3d.input}  # fmt: skip


@dataclass(frozen=True)
class Convolution:
    """A batched convolution over `n` spatial dimensions.

    `weight` is [O, C/groups, *kernel], of a `transposed` one [C, O/groups, *kernel]. `before` and
    `after` are the zeros put at either end.
    """

    n: int
    x: Node
    weight: Node
    bias: Node | None
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    extra: tuple[int, ...]
    """The output padding of a transposed one."""

    @property
    def space(self) -> tuple[int, ...]:
        """The spatial dimensions."""
        return tuple(range(2, 2 + self.n))


def convolution_of(node: Node) -> Convolution | None:
    """The convolution that a node is; None where it is unbatched or its kernel is not static."""
    match = CONVOLUTION_NAME.fullmatch(op_of(node))
    if match is None:
        return None
    n, transposed = int(match["n"]), bool(match["transposed"])
    x, weight = tensor_argument(node, "input"), tensor_argument(node, "weight")
    kernel = static_sizes(weight, tuple(range(2, 2 + n))) if rank(weight) == n + 2 else None
    stride, dilation = (numbers(argument(node, item), n) for item in ("stride", "dilation"))
    groups = argument(node, "groups")
    if rank(x) != n + 2 or kernel is None or stride is None or dilation is None:
        return None
    ends = _padding(argument(node, "padding"), kernel, dilation)
    extra = numbers(argument(node, "output_padding"), n) if transposed else (0,) * n
    if ends is None or extra is None or not isinstance(groups, int):
        return None
    return Convolution(
        n, x, weight, optional_tensor_argument(node, "bias"), kernel, stride, *ends, dilation,
        groups, transposed, extra,
    )  # fmt: skip


def _padding(
    value: object, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Zeros before and after; `same` puts the odd one after."""
    if value == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if value == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    found = None if isinstance(value, str) else numbers(value, len(kernel))
    return None if found is None else (found, found)
