"""Rules that move sums and means through matrix products and convolutions, and products with a
diagonal matrix.

Rule "diagonal products": a product with a diagonal matrix scales the rows or columns of the other.
Derivation: (diag(d) B)_ij = sum_k d_i [i = k] B_kj = d_i B_ij, and (A diag(d))_ij = A_ij d_j.
Conditions: the matrix is `diag` of a vector or `diag_embed`, its main diagonal the last two
dimensions; floats.
NaN and infinities: an element of the result has those of the two numbers that it depends on. Eager
also multiplies all others of B's column by 0 and so makes NaN of a whole column for one infinity;
that is not kept.
Rounding: one product is rounded once, as in eager's sum with zeros.

Rule "product sums": a sum over the rows or the columns of a matrix product moves to its
operands.
Derivation: sum_i (X W + b)_ij = ((sum_i X_i) W)_j + m b_j, and sum_j (X W + b)_ij = X_i (sum_j
W_j) + sum_j b_j; means likewise, without the m. The product shrinks to one row or column.
Conditions: floats; what is contracted is not reduced; batch dimensions are not reduced. For
sums over rows with a bias their number m is static.
NaN and infinities: where X is summed over rows and W is made of parameters, an infinity in X_ik
meets the same W_kj in both forms. Where W is summed over columns, X_ik = inf makes column j inf
* W_kj, and their sum is NaN unless all W_kj have one sign, but inf * sum_j W_kj is an infinity:
see Folds below for the second column that brings NaN back. Where the roles of X and W are
swapped, so are the two cases. Of two inputs neither is folded, unless finite values are all
that is asked for.
Rounding: the operand is summed in fp32 or wider; fewer products are rounded than in eager's
form.

Rule "convolution sums": a mean over space or over channels moves to the input or the weight of
a convolution.
Derivation: a convolution's output at place p is sum_{c,t} W_oct x[c, p s + t d - pad] + b_o.
Over all p: sum_{c,t} W_oct S_ct + P b_o, where S_ct is the sum of the inputs that tap t meets
as the kernel moves over the borders (`window_sums`), and P the number of places: one small
product per image. A transposed convolution sends x[c, i] by W_cot to i s + t d - pad; S_ct is
the sum of the x[c, i] whose target lies inside the output. Over output channels: sum_o conv(x,
W)_o = conv(x, sum_o W_o).
Conditions: weights made of parameters; all spatial dimensions are reduced, or the channel alone
(groups = 1). With a stride above 1 each tap is summed on its own, so an element may be read
more than once. For sums (not means) with a bias, sizes are static.
NaN and infinities: over space, weights made of parameters meet the same infinities as in eager,
for S_ct holds exactly the elements that tap t meets. Over channels see Folds below.
Rounding: S is summed in fp32 or wider and multiplied as a matrix product, where eager's
convolution rounds its operands to TF32 on the GPUs that have it.

Folds: a weight is summed over its outputs without losing the NaN that eager would have. Window
sums: for each tap of a kernel, the sum of the inputs that it meets, borders included.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    END,
    Change,
    Draft,
    Rule,
    Size,
    argument,
    dtype,
    floating,
    op_of,
    rank,
    shape,
    static,
    static_sizes,
)
from agentkernel.compiler.rewrite.patterns import (
    CONVOLUTION_OPS,
    TRANSPOSED_OPS,
    Convolution,
    Kind,
    Product,
    Reduction,
    convolution_of,
    multiplied,
    product_of,
    reduced,
    sum_of,
)


def folded(draft: Draft, kind: Kind, weight: Node, dim: int) -> Node:
    """The sum or mean of `weight` over its outputs `dim`; with a second output that finds NaN.

    Where x has an infinity, eager's outputs are +inf, -inf or NaN by the signs of its weights, and
    their sum is NaN unless all are alike; but inf times the sum of the weights is an infinity. So
    where NaN is to stay, the second output has the weight 0 for every input whose weights have not
    all one sign, and the folded weight for the others: inf * 0 = NaN. `selected_fold` reads both.
    """
    weight = draft.wide(weight)
    total = reduced(draft, kind, weight, (dim,))
    if not draft.infinities:
        return total
    positive = draft.call(aten.gt.Scalar, reduced(draft, "amin", weight, (dim,)), 0)
    negative = draft.call(aten.lt.Scalar, reduced(draft, "amax", weight, (dim,)), 0)
    alike = draft.call(aten.logical_or.default, positive, negative)
    value = weight.meta["val"]
    places = draft.call(aten.arange.default, 2, device=value.device)
    first = draft.call(aten.eq.Scalar, places, 0)
    shape = [2 if index == dim else 1 for index in range(rank(weight))]
    first = draft.call(aten.view.default, first, shape)
    kept = draft.call(aten.logical_or.default, first, alike)
    return draft.call(aten.where.ScalarOther, kept, total, 0.0)


def selected_fold(draft: Draft, both: Node, dim: int) -> Node:
    """The folded output, NaN where the second output says so; the only one where there is one."""
    if not draft.infinities:
        return both
    value = draft.call(aten.slice.Tensor, both, dim, 0, 1)
    witness = draft.call(aten.slice.Tensor, both, dim, 1, END)
    return draft.call(aten.where.self, draft.call(aten.isnan.default, witness), witness, value)


@dataclass(frozen=True)
class TapRange:
    """Tap t meets all but the first `skipped[t]` and the last `left[t]` elements of a dimension."""

    skipped: tuple[int, ...]
    left: tuple[int, ...]


def tap_range(convolution: Convolution, index: int) -> TapRange | None:
    """What each tap meets along spatial dimension `index`; None where it depends on the size.

    A plain tap t meets x[t d - p], x[t d - p + 1], ...: its first ones lie in the zeros before x,
    and it is the last tap that meets the end. A transposed tap sends x[i] to i s + t d - p, which
    must lie inside the output of (H - 1) s - 2 p + d (k - 1) + e + 1 places.
    """
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    before, after = convolution.before[index], convolution.after[index]
    if convolution.transposed:
        room = convolution.extra[index] - after
        first = tuple(max(0, -((t * d - before) // s)) for t in range(k))
        last = tuple(max(0, -((d * (k - 1 - t) + room) // s)) for t in range(k))
        return TapRange(first, last)
    if s != 1:
        return None
    first = tuple(max(0, t * d - before) for t in range(k))
    return TapRange(first, tuple(max(0, (k - 1 - t) * d - after) for t in range(k)))


def tap_sums(draft: Draft, x: Node, dim: int, found: TapRange) -> Node | None:
    """[..., H, ...] to [..., taps, ...]: the sum of what each tap meets along `dim`.

    What all taps meet is summed once; each tap adds the pieces at either end that it meets. Nothing
    is subtracted: no digits are lost, and an infinity counts for the taps that meet it only.
    """
    if draft.size_of(shape(x)[dim]) < max(found.skipped) + max(found.left):
        return None
    core = _part(draft, x, dim, max(found.skipped), -max(found.left) or END)
    starts, ends = _pieces(found.skipped), _pieces(found.left)
    heads = [(low, _part(draft, x, dim, low, high)) for low, high in starts]
    tails = [(low, _part(draft, x, dim, -high, -low or END)) for low, high in ends]
    sums: list[Node] = []
    known: dict[tuple[Node, ...], Node] = {}
    for skipped, left in zip(found.skipped, found.left, strict=True):
        pieces = [piece for low, piece in heads if low >= skipped]
        pieces += [piece for low, piece in tails if low >= left]
        total = core
        met: tuple[Node, ...] = (core,)
        for piece in pieces:
            met = (*met, piece)
            if met not in known:
                known[met] = draft.call(aten.add.Tensor, total, piece)
            total = known[met]
        sums.append(total)
    return stacked(draft, sums, dim)


def _part(draft: Draft, x: Node, dim: int, start: int, end: int) -> Node:
    piece = x if (start, end) == (0, END) else draft.call(aten.slice.Tensor, x, dim, start, end)
    return piece if static(shape(piece)[dim]) == 1 else reduced(draft, "sum", piece, (dim,))


def _pieces(counts: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbours among the sorted counts: the pieces that some taps meet and others do not."""
    ordered = sorted(set(counts))
    return list(itertools.pairwise(ordered))


def stacked(draft: Draft, parts: list[Node], dim: int) -> Node:
    """Join along `dim`, where each part has size 1, by choosing: a kernel can fuse that."""
    if len(parts) == 1:
        return parts[0]
    value = parts[0].meta["val"]
    full = range(len(value.shape))
    if len(set(parts)) == 1:
        sizes = [len(parts) if index == dim else -1 for index in full]
        return draft.call(aten.expand.default, parts[0], sizes)
    places = draft.call(aten.arange.default, len(parts), device=value.device)
    sizes = [len(parts) if index == dim else 1 for index in full]
    places = draft.call(aten.view.default, places, sizes)
    result = parts[-1]
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] is result:
            continue
        here = draft.call(aten.eq.Scalar, places, index)
        result = draft.call(aten.where.self, here, parts[index], result)
    return result


def strided_tap_sums(draft: Draft, x: Node, convolution: Convolution, index: int) -> Node:
    """`tap_sums` of a plain convolution with a stride: each tap's own slice, step by step.

    Tap t ends at least d (k - 1 - t) before the end of the padded input, and less than a step
    before that: no further element of its slice lies between.
    """
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    before, after = convolution.before[index], convolution.after[index]
    dim = 2 + index
    sums: list[Node] = []
    for tap in range(k):
        start = tap * d - before
        start += -(start // s) * s if start < 0 else 0
        end = -max(0, d * (k - 1 - tap) - after) or END
        piece = draft.call(aten.slice.Tensor, x, dim, start, end, s)
        sums.append(reduced(draft, "sum", piece, (dim,)))
    return stacked(draft, sums, dim)


def output_size(draft: Draft, convolution: Convolution, index: int) -> Size:
    """The number of output places along a spatial dimension."""
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    zeros = convolution.before[index] + convolution.after[index]
    size = draft.size(convolution.x, 2 + index)
    if convolution.transposed:
        size = draft.arithmetic(operator.sub, size, 1) if s != 1 else size
        size = draft.arithmetic(operator.mul, size, s) if s != 1 else size
        room = d * (k - 1) + convolution.extra[index] - zeros + (1 if s != 1 else 0)
        return draft.arithmetic(operator.add, size, room) if room else size
    room = zeros - d * (k - 1)
    if s == 1:
        return draft.arithmetic(operator.add, size, room) if room else size
    windows = draft.arithmetic(operator.floordiv, draft.arithmetic(operator.add, size, room - 1), s)
    return draft.arithmetic(operator.add, windows, 1)


aten = torch.ops.aten


def _sum_convolution_operands(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    convolution = convolution_of(found.x) if found is not None else None
    if found is None or convolution is None or not draft.parametric(convolution.weight):
        return None
    if not (convolution.bias is None or draft.parametric(convolution.bias)):
        return None
    if set(convolution.space) <= set(found.dims):
        return _over_space(draft, node, found, convolution)
    if found.dims == (1,) and convolution.groups == 1:
        return _over_channels(draft, node, found, convolution)
    return None


def _over_space(
    draft: Draft, node: Node, found: Reduction, convolution: Convolution
) -> Change | None:
    counts = static_sizes(found.x, convolution.space)
    if found.kind == "sum" and convolution.bias is not None and counts is None:
        return None
    if convolution.transposed and convolution.groups != 1:
        return None
    sums = _window_sums(draft, convolution)
    if sums is None:
        return None
    new = _contracted(draft, convolution, sums)
    if found.kind == "mean":
        places = [output_size(draft, convolution, index) for index in range(convolution.n)]
        new = draft.call(aten.div.Tensor, new, draft.product(places))
    if convolution.bias is not None:
        bias = draft.wide(convolution.bias)
        bias = draft.call(aten.view.default, bias, [-1, *[1] * convolution.n])
        if found.kind == "sum":
            bias = draft.call(aten.mul.Tensor, bias, math.prod(counts or ()))
        new = draft.call(aten.add.Tensor, new, bias)
    rest = tuple(dim for dim in found.dims if dim not in convolution.space)
    new = reduced(draft, found.kind, new, rest)
    new = draft.cast(draft.squeeze(new, found.dims, found.keep), dtype(node))
    line = (
        f"{node.name}: {found.word}_p conv(x, W)_p = sum_(c,t) W_ct S_ct"
        f"{' / P' if found.kind == 'mean' else ''}, S_ct: what tap t meets of {convolution.x.name}"
    )
    return Change(line, {node: new})


def _window_sums(draft: Draft, convolution: Convolution) -> Node | None:
    """[B, C, *space] to [B, C, *taps]: what each tap meets, one dimension after the other."""
    sums: Node | None = draft.wide(convolution.x)
    for index in range(convolution.n):
        if sums is None:
            return None
        found = tap_range(convolution, index)
        if found is not None:
            sums = tap_sums(draft, sums, 2 + index, found)
        else:
            sums = strided_tap_sums(draft, sums, convolution, index)
    return sums


def _contracted(draft: Draft, convolution: Convolution, sums: Node) -> Node:
    """[B, C, *taps] times the weight: [B, O, 1, ...]."""
    weight = draft.wide(convolution.weight)
    if convolution.groups != 1:
        ones, zeros = [1] * convolution.n, [0] * convolution.n
        op = CONVOLUTION_OPS[convolution.n]
        return draft.call(op, sums, weight, None, ones, zeros, ones, convolution.groups)
    if convolution.transposed:
        weight = draft.call(aten.transpose.int, weight, 0, 1)
    flat = draft.call(aten.flatten.using_ints, sums, 1)
    rows = draft.call(aten.flatten.using_ints, weight, 1)
    result = draft.call(aten.linear.default, flat, rows)
    for _ in range(convolution.n):
        result = draft.call(aten.unsqueeze.default, result, -1)
    return result


def _over_channels(
    draft: Draft, node: Node, found: Reduction, convolution: Convolution
) -> Change | None:
    outputs = 1 if convolution.transposed else 0
    weight = folded(draft, found.kind, convolution.weight, outputs)
    if dtype(weight) != dtype(convolution.x):
        return None
    both = _again(draft, convolution, weight)
    new = selected_fold(draft, both, 1)
    if convolution.bias is not None:
        bias = reduced(draft, found.kind, convolution.bias, (0,))
        new = draft.call(aten.add.Tensor, new, bias)
    line = f"{node.name}: {found.word}_o conv(x, W)_o = conv(x, {found.word}_o W_o)"
    return Change(line, {node: draft.squeeze(new, found.dims, found.keep)})


def _again(draft: Draft, old: Convolution, weight: Node) -> Node:
    """The convolution with another weight and no bias."""
    given = replace(old, weight=weight)
    if old.transposed:
        return draft.call(TRANSPOSED_OPS[old.n], given.x, weight, None, list(old.stride),
                          list(old.before), list(old.extra), 1, list(old.dilation))  # fmt: skip
    padding = list(old.before) if old.before == old.after else "same"
    op = CONVOLUTION_OPS[old.n] if old.before == old.after else PADDED[old.n]
    return draft.call(op, given.x, weight, None, list(old.stride), padding, list(old.dilation))


PADDED = {1: aten.conv1d.padding, 2: aten.conv2d.padding, 3: aten.conv3d.padding}
CONVOLUTION_SUMS = Rule("convolution sums", _sum_convolution_operands)


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


def _scale_by_diagonal(draft: Draft, node: Node) -> Change | None:
    product = product_of(node)
    if product is None:
        return None
    rows, columns = _diagonal_of(product.left), _diagonal_of(product.right)
    right = product.right
    if rows is not None:
        if product.turned:
            right = draft.call(aten.transpose.int, right, -2, -1)
        new = draft.call(aten.mul.Tensor, draft.call(aten.unsqueeze.default, rows, -1), right)
        line = f"{node.name}: diag({rows.name}) B scales the rows of B = {product.right.name}"
    elif columns is not None:
        if product.batched:
            columns = draft.call(aten.unsqueeze.default, columns, -2)
        new = draft.call(aten.mul.Tensor, product.left, columns)
        line = f"{node.name}: A diag(d) scales the columns of A = {product.left.name}"
    else:
        return None
    if product.bias is not None:
        new = draft.call(aten.add.Tensor, new, product.bias)
    return Change(line, {node: new})


def _diagonal_of(matrix: Node) -> Node | None:
    """What lies on the diagonal of a diagonal matrix, or of a batch of them."""
    name, vector = op_of(matrix), matrix.args[0] if matrix.args else None
    if not floating(vector):
        return None
    if name == "diag.default" and rank(vector) == 1:
        return vector if argument(matrix, "diagonal") == 0 else None
    if name != "diag_embed.default" or argument(matrix, "offset") != 0:
        return None
    full = rank(matrix)
    dims = {cast(int, argument(matrix, item)) % full for item in ("dim1", "dim2")}
    return vector if dims == {full - 2, full - 1} else None


DIAGONAL_PRODUCTS = Rule("diagonal products", _scale_by_diagonal)
