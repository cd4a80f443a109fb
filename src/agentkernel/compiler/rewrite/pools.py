"""Which pooling is a node?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import argument, numbers, op_of, rank, tensor_argument

aten = torch.ops.aten
POOL_NAME = re.compile(r"(?P<kind>avg|max)_pool(?P<n>[123])d\.default")
POOL_OPS = {
    ("avg", 1): aten.avg_pool1d.default, ("avg", 2): aten.avg_pool2d.default,
    ("avg", 3): aten.avg_pool3d.default, ("max", 1): aten.max_pool1d.default,
    ("max", 2): aten.max_pool2d.default, ("max", 3): aten.max_pool3d.default,
}  # fmt: skip


@dataclass(frozen=True)
class Pool:
    """A pooling over the last `n` dimensions. `plain`: no padding, dilation, ceiling or divisor."""

    kind: str
    n: int
    x: Node
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    plain: bool

    @property
    def space(self) -> tuple[int, ...]:
        """The pooled dimensions."""
        full = rank(self.x)
        return tuple(range(full - self.n, full))

    @property
    def tiles(self) -> bool:
        """True where windows touch and do not overlap."""
        return self.kernel == self.stride


def pool_of(node: object) -> Pool | None:
    """The pooling that a node is."""
    match = POOL_NAME.fullmatch(op_of(node))
    if match is None or not isinstance(node, Node):
        return None
    n = int(match["n"])
    kernel = numbers(argument(node, "kernel_size"), n)
    given = argument(node, "stride")
    stride = kernel if given is None or given == [] else numbers(given, n)
    if kernel is None or stride is None:
        return None
    plain = numbers(argument(node, "padding"), n) == (0,) * n
    plain &= argument(node, "ceil_mode") is False
    if match["kind"] == "max":
        plain &= numbers(argument(node, "dilation"), n) == (1,) * n
    elif n > 1:
        plain &= argument(node, "divisor_override") is None
    return Pool(match["kind"], n, tensor_argument(node, "self"), kernel, stride, plain)


def pooled(
    draft: Draft, kind: str, x: Node, kernel: tuple[int, ...], stride: tuple[int, ...]
) -> Node:
    """Add a plain pooling."""
    return draft.call(POOL_OPS[kind, len(kernel)], x, list(kernel), list(stride))
