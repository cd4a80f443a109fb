"""How does a sum over the rows or the columns of a matrix product move to its operands?

Derivation: sum_i (X W + b)_ij = ((sum_i X_i) W)_j + m b_j, and sum_j (X W + b)_ij = X_i (sum_j
W_j) + sum_j b_j; means likewise, without the m. The product shrinks to one row or column.
Conditions: floats; what is contracted is not reduced; batch dimensions are not reduced. For sums
over rows with a bias their number m is static.
NaN and infinities: where X is summed over rows and W is made of parameters, an infinity in X_ik
meets the same W_kj in both forms. Where W is summed over columns, X_ik = inf makes column j
inf * W_kj, and their sum is NaN unless all W_kj have one sign, but inf * sum_j W_kj is an infinity:
see `folds` for the second column that brings NaN back. Where the roles of X and W are swapped, so
are the two cases. Of two inputs neither is folded, unless finite values are all that is asked for.
Rounding: the operand is summed in fp32 or wider; fewer products are rounded than in eager's form.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.products import Product, multiplied, product_of
from agentkernel.compiler.rewrite.reading import dtype, rank, static_sizes
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import Reduction, reduced, sum_of
from agentkernel.compiler.rewrite.rules.folds import folded, selected_fold

aten = torch.ops.aten


def _sum_operands(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    product = product_of(found.x) if found is not None else None
    if found is None or product is None:
        return None
    full = rank(found.x)
    batch = full - 2 if product.batched else 0
    rows = tuple(dim for dim in found.dims if batch <= dim < full - 1)
    if any(dim < batch for dim in found.dims):
        return None
    if rows:
        return _over_rows(draft, node, found, product, rows)
    return _over_columns(draft, node, found, product)


def _over_rows(
    draft: Draft, node: Node, found: Reduction, product: Product, rows: tuple[int, ...]
) -> Change | None:
    guarded = draft.infinities and not draft.parametric(product.right)
    if guarded and not (draft.parametric(product.left) and len(rows) == 1):
        return None
    bias = product.bias
    if bias is not None and found.kind == "sum":
        sizes = static_sizes(found.x, rows)
        if sizes is None:
            return None
        bias = draft.call(aten.mul.Tensor, bias, math.prod(sizes))
    if guarded:
        left = folded(draft, found.kind, product.left, rows[0])
    else:
        left = reduced(draft, found.kind, draft.wide(product.left), rows)
    new = multiplied(draft, product, left, draft.wide(product.right))
    if guarded:
        new = selected_fold(draft, new, rows[0])
    if bias is not None:
        new = draft.call(aten.add.Tensor, new, draft.wide(bias))
    rest = tuple(dim for dim in found.dims if dim not in rows)
    new = reduced(draft, found.kind, new, rest)
    new = draft.cast(draft.squeeze(new, found.dims, found.keep), dtype(node))
    line = (
        f"{node.name}: {found.word}_i (x_i W + b) = ({found.word}_i x_i) W + "
        f"{'b' if found.kind == 'mean' else 'm b'}, x = {product.left.name}"
    )
    return Change(line, {node: new})


def _over_columns(draft: Draft, node: Node, found: Reduction, product: Product) -> Change | None:
    free_left, free_right = draft.parametric(product.left), draft.parametric(product.right)
    if not (free_left or free_right) and draft.infinities:
        return None
    column = rank(found.x) - 1
    right = product.right
    if free_right and not free_left:
        weight = folded(draft, found.kind, right, product.right_n)
        both = multiplied(draft, product, draft.wide(product.left), weight)
        new = selected_fold(draft, both, column)
    else:
        weight = reduced(draft, found.kind, draft.wide(right), (product.right_n,))
        new = multiplied(draft, product, draft.wide(product.left), weight)
    if product.bias is not None:
        bias = reduced(draft, found.kind, draft.wide(product.bias), (0,))
        new = draft.call(aten.add.Tensor, new, bias)
    new = draft.cast(draft.squeeze(new, found.dims, found.keep), dtype(node))
    line = (
        f"{node.name}: {found.word}_j (x W + b)_j = x ({found.word}_j W_j) + {found.word}(b), "
        f"W = {right.name}"
    )
    return Change(line, {node: new})


PRODUCT_SUMS = Rule("product sums", _sum_operands)
