"""Lowerings of distances between all pairs of rows."""

from __future__ import annotations

from agentkernel.compiler.ir import ONE, Node, Scalar, UnsupportedOp
from agentkernel.compiler.lowering.products import batched, product
from agentkernel.compiler.lowering.reductions import norm_over
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

BY_PRODUCT_FROM = 25
"""Rows above which eager works out euclidean distances from a product (ATen's Distance.cpp)."""


@lowers("cdist.default", "_cdist_forward.default")
def _cdist(
    state: Lowering, x: Node, y: Node, p: Scalar = 2.0, compute_mode: int | None = None
) -> Lowered:
    """Where eager has |x|^2 + |y|^2 - 2 x y, so has the kernel behind a product; else the norm of
    each difference, added up where it is made."""
    if p == 2 and compute_mode != 2:
        rows = (x.shape[-2], y.shape[-2])
        if not all(size.is_number for size in rows):
            raise UnsupportedOp("aten.cdist", "a free number of rows decides how eager does it")
        if compute_mode == 1 or max(map(int, rows)) > BY_PRODUCT_FROM:
            return _by_product(state, x, y)
    b = state.b
    one = b.reshape(x, (*x.shape[:-1], ONE, x.shape[-1]))
    other = b.reshape(y, (*y.shape[:-2], ONE, *y.shape[-2:]))
    apart = b.pointwise("sub", state.compute(one), state.compute(other), name="difference")
    order = int(p) if p == int(p) else p
    return b.reshape(norm_over(state, apart, order, (len(apart.shape) - 1,)), state.shape)


def _by_product(state: Lowering, x: Node, y: Node) -> Node:
    b = state.b
    if len(x.shape) != len(y.shape):
        raise UnsupportedOp("aten.cdist", "batches of one side alone")
    turned = b.permute(y, (*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2))
    left, right = batched(state, x, turned)
    dot = state.compute(product(state, left, right, rounded=False))
    ours, theirs = (
        b.reduce("sum", b.pointwise("mul", state.compute(z), state.compute(z)), (len(z.shape) - 1,))
        for z in (x, y)
    )
    theirs = b.reshape(theirs, (*y.shape[:-2], ONE, y.shape[-2]))
    lengths = b.pointwise("add", ours, theirs)
    square = b.pointwise("sub", lengths, b.pointwise("mul", dot, 2.0))
    return b.pointwise("sqrt", b.pointwise("maximum", square, 0.0), name="distance")
