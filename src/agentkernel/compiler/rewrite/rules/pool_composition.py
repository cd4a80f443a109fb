"""Which poolings make one pooling, and which are lost in a later mean or maximum?

Derivation: where the inner windows tile, the mean of k2 means of k1 elements each is the mean of
all k1 k2, so avg_k2,s2(avg_k1,k1) = avg_(k1 k2),(k1 s2). The maximum of maxima is the maximum of
the union: max_k2,s2(max_k1,s1) = max_(k1 + (k2 - 1) s1),(s1 s2) where the union has no gaps (s1 <=
k1). floor((floor((H - k1) / s1) + 1 - k2) / s2) = floor((H - k1 - (k2 - 1) s1) / (s1 s2)) gives
the same number of windows. A mean over the whole space after an average pooling that tiles it is
the mean of all; a maximum over the whole space after a max pooling that leaves nothing out
likewise. A pooling of kernel and stride 1 is nothing.
Conditions: no padding, no dilation, no ceiling, no divisor; tiling is provable from the sizes.
NaN and infinities: sums and maxima over the same elements; as before.
"""

from __future__ import annotations

import math

import sympy
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.pools import Pool, pool_of, pooled
from agentkernel.compiler.rewrite.reading import (
    argument,
    expression,
    numbers,
    op_of,
    shape,
    static_sizes,
)
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import ADAPTIVE, extremum_of, reduced, sum_of
from agentkernel.compiler.rewrite.terms import TERM_OPS


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
