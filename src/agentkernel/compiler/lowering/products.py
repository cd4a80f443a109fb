"""How do linear layers and matrix products become one kind of product with additions around it?

A product with one or two columns is no work for tensor cores: a tile would be padding mostly. It
becomes a multiplication and a sum over each row, so that its operands are read once, by the kernel
that also does what comes before and after.
"""

from __future__ import annotations

import sympy
import torch

from agentkernel.compiler.ir import Node, Scalar, same
from agentkernel.compiler.lowering.cuts import slice_at
from agentkernel.compiler.lowering.pointwise import scaled_node
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

PRODUCT_TYPES = (torch.float32, torch.float16, torch.bfloat16)
NARROW = 2
"""Most columns of a product that is lowered as sums over rows."""


def product(state: Lowering, a: Node, b: Node, *, rounded: bool = True) -> Node:
    """a[..., M, K] @ b[..., K, N] as one node; operands may be views (a transposed weight). Not
    `rounded`, sums over rows stay in the type that they were computed in, for what is added."""
    columns = b.shape[-1]
    if len(b.shape) == 2 and columns.is_number and int(columns) <= NARROW:
        return _narrow(state, a, b, rounded)
    shape = (*a.shape[:-1], b.shape[-1])
    return state.b.library("product", (a, b), a.dtype, shape, state.call)


def _narrow(state: Lowering, a: Node, b: Node, rounded: bool) -> Node:
    """a[..., M, K] @ b[K, N] for N of 1 or 2: [..., M, N], each column a sum over rows."""
    build = state.b
    sums = [
        build.reduce(
            "sum",
            build.pointwise("mul", state.compute(a), state.compute(_column(state, b, index))),
            (len(a.shape) - 1,),
        )
        for index in range(int(b.shape[-1]))
    ]
    columns = [state.cast(item, a.dtype) for item in sums] if rounded else sums
    if len(columns) == 1:
        return columns[0]
    places = build.iota((sympy.Integer(len(columns)),), 0)
    return build.pointwise("where", build.pointwise("eq", places, 0), *columns)


def _column(state: Lowering, b: Node, index: int) -> Node:
    """Column `index` of b[K, N] as [K]; of a turned weight its row, computed alone if it can be."""
    turned = b.kind == "view" and b.op == "permute" and b.attrs == (1, 0)
    found = slice_at(state.b, b.args[0], 0, index) if turned else slice_at(state.b, b, 1, index)
    return state.b.reshape(found, (b.shape[0],))


def _plain(a: Node, b: Node) -> bool:
    """True where the product is a flat one, or batched with equal leading dimensions."""
    if a.dtype not in PRODUCT_TYPES or a.dtype != b.dtype or len(a.shape) < 2:
        return False
    if len(b.shape) == 2:
        return True
    return len(a.shape) == len(b.shape) and all(map(same, a.shape[:-2], b.shape[:-2]))


@lowers("linear.default")
def _linear(state: Lowering, x: Node, weight: Node, bias: Node | None = None) -> Lowered:
    if not _plain(x, weight) or len(weight.shape) != 2:
        return state.library()
    result = product(state, x, state.b.permute(weight, (1, 0)), rounded=bias is None)
    if bias is None:
        return result
    return state.b.pointwise("add", state.compute(result), state.compute(bias))


@lowers("mm.default", "bmm.default", "matmul.default")
def _matmul(state: Lowering, x: Node, y: Node) -> Lowered:
    return product(state, x, y) if _plain(x, y) else state.library()


@lowers("addmm.default", "baddbmm.default")
def _addmm(
    state: Lowering, bias: Node, x: Node, y: Node, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Lowered:
    if not _plain(x, y) or beta == 0:
        return state.library()
    result = scaled_node(state, state.compute(product(state, x, y, rounded=False)), alpha)
    return state.b.pointwise("add", result, scaled_node(state, state.compute(bias), beta))
