"""Which matrix product is a node: left [..., M, K] times right [..., K, N], plus a bias over N?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import (
    argument,
    expression,
    floating,
    op_of,
    optional_tensor_argument,
    rank,
    shape,
    tensor_argument,
)

aten = torch.ops.aten
PRODUCT_OPS = ("mm.default", "bmm.default", "matmul.default")


@dataclass(frozen=True)
class Product:
    """`right` is [K, N], or [N, K] where it is `turned`; `batched`: with leading dimensions."""

    left: Node
    right: Node
    bias: Node | None
    turned: bool
    batched: bool

    @property
    def right_n(self) -> int:
        """The dimension of `right` that gives the result's columns."""
        return rank(self.right) - (2 if self.turned else 1)

    @property
    def right_k(self) -> int:
        """The dimension of `right` that is contracted."""
        return rank(self.right) - (1 if self.turned else 2)


def product_of(node: Node) -> Product | None:
    """The product that a node is; None where it is none, or of vectors, or broadcast."""
    name = op_of(node)
    if name == "linear.default":
        left, right, bias = (argument(node, item) for item in ("input", "weight", "bias"))
        made = Product(left, right, bias, True, False)  # type: ignore[arg-type]
        return made if rank(made.right) == 2 and rank(made.left) >= 2 else None
    if name == "addmm.default":
        if argument(node, "beta") != 1 or argument(node, "alpha") != 1:
            return None
        bias = optional_tensor_argument(node, "self")
        if bias is None or rank(bias) != 1:
            return None
        return Product(
            tensor_argument(node, "mat1"), tensor_argument(node, "mat2"), bias, False, False
        )
    if name not in PRODUCT_OPS:
        return None
    left, right = node.args[:2]
    if not floating(left) or not floating(right) or rank(left) < 2 or rank(right) < 2:
        return None
    batched = rank(right) > 2
    if batched and (rank(left) != rank(right) or not _same_batch(left, right)):
        return None
    return Product(left, right, None, False, batched)


def _same_batch(left: Node, right: Node) -> bool:
    pairs = zip(shape(left)[:-2], shape(right)[:-2], strict=True)
    return all(expression(a) == expression(b) for a, b in pairs)


def multiplied(draft: Draft, product: Product, left: Node, right: Node) -> Node:
    """The same kind of product of other operands, without the bias."""
    if product.turned:
        return draft.call(aten.linear.default, left, right)
    return draft.call(aten.matmul.default, left, right)
