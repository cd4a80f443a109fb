"""When is an average pooling after a convolution one convolution with a wider kernel?

Derivation: avg_m(conv(x, W))_i = 1/m sum_a sum_t x[(i r + a) s + t - pad] W_t = sum_q x[i r s + q
- pad] V_q with V_q = 1/m sum_{a s + t = q} W_t: a kernel of (m - 1) s + k taps and stride r s.
Fewer places more than make up for more taps: 16 taps at a quarter of the places do the work of a 3
x 3 kernel and a 2 x 2 pooling.
Conditions: plain pooling, a plain convolution without dilation, equal zeros at both ends, weights
made of parameters. V is computed in the graph, as W times matrices of zeros and ones.
NaN and infinities: for finite values only. Where windows add inf * W_t of both signs eager has
NaN, here it is inf * V_q. To find that out would cost as much as is saved.
Rounding: V is rounded once more than W.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import CONVOLUTION_OPS, Convolution, convolution_of
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.pools import Pool, pool_of
from agentkernel.compiler.rewrite.reading import dtype, rank
from agentkernel.compiler.rewrite.record import Change, Rule

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
