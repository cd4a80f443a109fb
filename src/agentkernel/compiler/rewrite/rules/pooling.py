"""Rules that merge poolings and move other maps past them.

Rule "pool composition": poolings that make one pooling become one, and those that a later mean
or maximum absorbs go.
Derivation: where the inner windows tile, the mean of k2 means of k1 elements each is the mean
of all k1 k2, so avg_k2,s2(avg_k1,k1) = avg_(k1 k2),(k1 s2). The maximum of maxima is the
maximum of the union: max_k2,s2(max_k1,s1) = max_(k1 + (k2 - 1) s1),(s1 s2) where the union has
no gaps (s1 <= k1). floor((floor((H - k1) / s1) + 1 - k2) / s2) = floor((H - k1 - (k2 - 1) s1) /
(s1 s2)) gives the same number of windows. A mean over the whole space after an average pooling
that tiles it is the mean of all; a maximum over the whole space after a max pooling that leaves
nothing out likewise. A pooling of kernel and stride 1 is nothing.
Conditions: no padding, no dilation, no ceiling, no divisor; tiling is provable from the sizes.
NaN and infinities: sums and maxima over the same elements; as before.

Rule "pooled first": a map waits until an average pooling has made its input smaller.
Derivation: a pooled value is a mean over a window, and a map that is affine in each channel or
across channels, but the same at every place, goes past a mean: avg(a x + t) = a avg(x) + t,
avg(conv_1x1(x)) = conv_1x1(avg(x)), and avg(bn(x)) = bn(avg(x)) with running statistics.
Conditions: plain pooling (every window is full); a is a number (not 0) or made of parameters, a
and t do not change over space; the convolution has kernel and stride 1, no padding, and weights
made of parameters.
NaN and infinities: a finite a or W meets the sum of the infinities of a channel in the place of
each of them: the same sign, or NaN, comes out. An infinite t ends up in the result on both
sides.
Rounding: a mean is rounded where each of its terms was. cuDNN rounds what an fp32 convolution
reads to TF32, by default. Of many terms these errors average out, of their mean they do not,
and a norm that takes the mean over the places off makes the most of them: 32 times eager's
error for values in [0, 1) and windows of 32 x 32. So the convolution becomes a product of
matrices, which is not rounded.

Rule "pooled convolutions": an average pooling after a convolution becomes one convolution with
a wider kernel.
Derivation: avg_m(conv(x, W))_i = 1/m sum_a sum_t x[(i r + a) s + t - pad] W_t = sum_q x[i r s +
q - pad] V_q with V_q = 1/m sum_{a s + t = q} W_t: a kernel of (m - 1) s + k taps and stride r
s. Fewer places more than make up for more taps: 16 taps at a quarter of the places do the work
of a 3 x 3 kernel and a 2 x 2 pooling.
Conditions: plain pooling, a plain convolution without dilation, equal zeros at both ends,
weights made of parameters. V is computed in the graph, as W times matrices of zeros and ones.
NaN and infinities: for finite values only. Where windows add inf * W_t of both signs eager has
NaN, here it is inf * V_q. To find that out would cost as much as is saved.
Rounding: V is rounded once more than W.
"""

from __future__ import annotations

import math
import operator

import sympy
import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    Change,
    Draft,
    Rule,
    argument,
    dtype,
    expression,
    numbers,
    op_of,
    rank,
    shape,
    static_sizes,
)
from agentkernel.compiler.rewrite.patterns import (
    ADAPTIVE,
    CONVOLUTION_OPS,
    TERM_OPS,
    Convolution,
    Pool,
    Term,
    applied,
    constant_along,
    convolution_of,
    extremum_of,
    name_of,
    pool_of,
    pooled,
    reduced,
    sum_of,
    terms_of,
)
from agentkernel.compiler.rewrite.rules.past_reductions import running_norm


def _compose_pools(draft: Draft, node: Node) -> Change | None:
    outer = pool_of(node)
    if outer is not None:
        return _nothing(node, outer) or _of_pool(draft, node, outer)
    return _same_size(node) or _whole(draft, node)


def _nothing(node: Node, pool: Pool) -> Change | None:
    if not pool.plain or {*pool.kernel, *pool.stride} != {1}:
        return None
    return Change(f"{node.name}: windows of one element", {node: pool.x})


def _same_size(node: Node) -> Change | None:
    """An adaptive pooling to the size that is there."""
    n = ADAPTIVE.get(op_of(node))
    x = node.args[0] if n is not None else None
    if n is None or not isinstance(x, Node):
        return None
    wanted = numbers(argument(node, "output_size"), n)
    if wanted is None or static_sizes(x, tuple(range(-n, 0))) != wanted:
        return None
    return Change(f"{node.name}: the size stays {list(wanted)}", {node: x})


def _of_pool(draft: Draft, node: Node, outer: Pool) -> Change | None:
    inner = pool_of(outer.x)
    if inner is None or not (inner.plain and outer.plain):
        return None
    if (inner.kind, inner.n) != (outer.kind, outer.n):
        return None
    pairs = list(zip(inner.kernel, inner.stride, outer.kernel, outer.stride, strict=True))
    if outer.kind == "avg":
        if not inner.tiles:
            return None
        kernel = tuple(k1 * k2 for k1, _, k2, _ in pairs)
    else:
        if any(s1 > k1 for k1, s1, _, _ in pairs):
            return None
        kernel = tuple(k1 + (k2 - 1) * s1 for k1, s1, k2, _ in pairs)
    stride = tuple(s1 * s2 for _, s1, _, s2 in pairs)
    new = pooled(draft, outer.kind, inner.x, kernel, stride)
    line = (
        f"{node.name}: {outer.kind}pool {list(outer.kernel)} of {outer.kind}pool "
        f"{list(inner.kernel)} is one of {list(kernel)}, stride {list(stride)}"
    )
    return Change(line, {node: new})


def _whole(draft: Draft, node: Node) -> Change | None:
    """A mean, sum or maximum over the whole space of a pooled value."""
    found = sum_of(node) or extremum_of(node)
    pool = pool_of(found.x) if found is not None else None
    if found is None or pool is None or not pool.plain or not set(pool.space) <= set(found.dims):
        return None
    if (pool.kind == "avg") != (found.kind in ("sum", "mean")) or found.kind == "amin":
        return None
    if not _covers(pool):
        return None
    new = reduced(draft, found.kind, pool.x, found.dims)
    if found.kind == "sum":
        new = draft.call(TERM_OPS["div"], new, math.prod(pool.kernel))
    line = (
        f"{node.name}: the {found.word} over all {pool.kind}pool windows is that over all elements"
    )
    return Change(line, {node: draft.squeeze(new, found.dims, found.keep)})


def _covers(pool: Pool) -> bool:
    """Every element lies in a window, and of an average pooling in exactly one."""
    sizes = [expression(shape(pool.x)[dim]) for dim in pool.space]
    if pool.kind == "avg" and not pool.tiles:
        return False
    return all(
        stride <= kernel and sympy.simplify(sympy.Mod(size - kernel, stride)) == 0
        for size, kernel, stride in zip(sizes, pool.kernel, pool.stride, strict=True)
    )


POOL_COMPOSITION = Rule("pool composition", _compose_pools)


aten = torch.ops.aten


def _widen_convolution(draft: Draft, node: Node) -> Change | None:
    pool = pool_of(node)
    convolution = convolution_of(pool.x) if pool is not None and pool.plain else None
    if pool is None or convolution is None or pool.kind != "avg" or pool.n != convolution.n:
        return None
    if convolution.transposed or set(convolution.dilation) != {1}:
        return None
    if convolution.before != convolution.after or not draft.parametric(convolution.weight):
        return None
    weight = draft.cast(_spread(draft, convolution, pool), dtype(convolution.weight))
    stride = [s * r for s, r in zip(convolution.stride, pool.stride, strict=True)]
    new = draft.call(
        CONVOLUTION_OPS[pool.n], convolution.x, weight, convolution.bias, stride,
        list(convolution.before), [1] * pool.n, convolution.groups,
    )  # fmt: skip
    taps = [(m - 1) * s + k for k, s, m in _dims(convolution, pool)]
    line = (
        f"{node.name}: avgpool {list(pool.kernel)} of conv = conv with {taps} taps, stride {stride}"
    )
    return Change(line, {node: new})


def _dims(convolution: Convolution, pool: Pool) -> list[tuple[int, int, int]]:
    """Kernel, stride and pooling window along each spatial dimension."""
    return list(zip(convolution.kernel, convolution.stride, pool.kernel, strict=True))


def _spread(draft: Draft, convolution: Convolution, pool: Pool) -> Node:
    """V: along each dimension W times the matrix of ones where q - t = a s for some a < m."""
    weight = draft.wide(convolution.weight)
    last = rank(weight) - 1
    for index, (kernel, stride, window) in enumerate(_dims(convolution, pool)):
        dim = 2 + index
        matrix = _ones(draft, weight, kernel, stride, window)
        turned = weight if dim == last else draft.call(aten.transpose.int, weight, dim, last)
        turned = draft.call(aten.matmul.default, turned, matrix)
        weight = turned if dim == last else draft.call(aten.transpose.int, turned, dim, last)
    return draft.call(aten.div.Tensor, weight, math.prod(pool.kernel))


def _ones(draft: Draft, like: Node, kernel: int, stride: int, window: int) -> Node:
    device = like.meta["val"].device
    taps = draft.call(aten.arange.default, kernel, device=device)
    places = draft.call(aten.arange.default, (window - 1) * stride + kernel, device=device)
    apart = draft.call(aten.sub.Tensor, places, draft.call(aten.unsqueeze.default, taps, -1))
    hit = draft.call(aten.eq.Scalar, apart, 0)
    for offset in range(stride, window * stride, stride):
        more = draft.call(aten.eq.Scalar, apart, offset)
        hit = draft.call(aten.logical_or.default, hit, more)
    return draft.cast(hit, dtype(like))


POOLED_CONVOLUTIONS = Rule("pooled convolutions", _widen_convolution, finite_only=True)


def _pool_first(draft: Draft, node: Node) -> Change | None:
    pool = pool_of(node)
    if pool is None or pool.kind != "avg" or not pool.plain:
        return None
    words: list[str] = []
    new = _waiting(draft, pool, pool.x, words)
    line = f"{node.name}: {', '.join(reversed(words))} wait for the pooling"
    return Change(line, {node: new}) if words else None


def _waiting(draft: Draft, pool: Pool, x: Node, words: list[str]) -> Node:
    """The pooled `x`, with every map that may wait after the pooling; `words` names them."""
    for term in terms_of(x):
        if _may_wait(draft, pool, term):
            words.append(f"x {term.verb} {name_of(term.other)}")
            return applied(draft, term, _waiting(draft, pool, term.x, words), term.other)
    if _pointwise(draft, x, pool):
        words.append("a 1x1 convolution")
        inner = _waiting(draft, pool, x.args[0], words)  # type: ignore[arg-type]
        return _mixed(draft, x, inner)
    norm = running_norm(draft, x)
    if norm is not None:
        words.append("batch norm with running statistics")
        inner = _waiting(draft, pool, norm.args[0], words)  # type: ignore[arg-type]
        new = draft.call(norm.target, inner, *norm.args[1:])  # type: ignore[arg-type]
        return draft.call(operator.getitem, new, 0)
    return pooled(draft, "avg", x, pool.kernel, pool.stride)


def _mixed(draft: Draft, node: Node, x: Node) -> Node:
    """What the 1x1 convolution `node` makes of `x`, in fp32 as a product of matrices."""
    found = convolution_of(node)
    if found is None or found.groups != 1 or dtype(x) != torch.float32:
        return draft.call(node.target, x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    rows = draft.call(aten.flatten.using_ints, found.weight, 1)
    columns = draft.call(aten.flatten.using_ints, x, 2)
    product = draft.call(aten.matmul.default, rows, columns)
    batch, *space = (draft.size(x, dim) for dim in (0, *found.space))
    result = draft.call(aten.view.default, product, [batch, draft.size(rows, 0), *space])
    if found.bias is None:
        return result
    bias = draft.call(aten.view.default, found.bias, [-1, *(1 for _ in found.space)])
    return draft.call(aten.add.Tensor, result, bias)


def _may_wait(draft: Draft, pool: Pool, term: Term) -> bool:
    if not constant_along(term.other, pool.space, rank(pool.x)):
        return False
    if term.verb in ("add", "sub"):
        return True
    if term.verb == "div" and isinstance(term.other, Node):
        return False
    return draft.parametric(term.other) and term.other != 0


def _pointwise(draft: Draft, node: Node, pool: Pool) -> bool:
    found = convolution_of(node)
    if found is None or found.transposed or found.n != pool.n:
        return False
    if {*found.kernel, *found.stride} != {1} or {*found.before, *found.after} != {0}:
        return False
    return all(map(draft.parametric, (found.weight, found.bias)))


POOLED_FIRST = Rule("pooled first", _pool_first)
