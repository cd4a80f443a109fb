"""Which maps may wait until an average pooling has made their input smaller?

Derivation: a pooled value is a mean over a window, and a map that is affine in each channel or
across channels, but the same at every place, goes past a mean: avg(a x + t) = a avg(x) + t,
avg(conv_1x1(x)) = conv_1x1(avg(x)), and avg(bn(x)) = bn(avg(x)) with running statistics.
Conditions: plain pooling (every window is full); a is a number (not 0) or made of parameters, a and
t do not change over space; the convolution has kernel and stride 1, no padding, and weights made of
parameters.
NaN and infinities: a finite a or W meets the sum of the infinities of a channel in the place of
each of them: the same sign, or NaN, comes out. An infinite t ends up in the result on both sides.
Rounding: a mean is rounded where each of its terms was. cuDNN rounds what an fp32 convolution reads
to TF32, by default. Of many terms these errors average out, of their mean they do not, and a norm
that takes the mean over the places off makes the most of them: 32 times eager's error for values
in [0, 1) and windows of 32 x 32. So the convolution becomes a product of matrices, which is not
rounded.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import convolution_of
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.pools import Pool, pool_of, pooled
from agentkernel.compiler.rewrite.reading import dtype, rank
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.rules.scaled_sums import running_norm
from agentkernel.compiler.rewrite.terms import Term, applied, constant_along, name_of, terms_of

aten = torch.ops.aten


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
