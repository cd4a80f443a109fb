"""How is a weight folded over its outputs without losing the NaN that eager would have?"""

from __future__ import annotations

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import END, rank
from agentkernel.compiler.rewrite.reductions import Kind, reduced

aten = torch.ops.aten


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
