"""Which scalings and additions may wait until a sum or mean has been taken?

Derivation: sum_i (a x_i) = a sum_i x_i; sum_i (x_i + t) = sum_i x_i + n t, mean_i (x_i + t) =
mean_i x_i + t, for a and t that do not change along the reduced dimensions. Batch norm with
running statistics is such a map for each channel: mean(bn(x)) = bn(mean(x)) over space.
Conditions: a is a number (not 0) or made of parameters; for sums of x + t, n is static.
NaN and infinities: a finite a leaves them where they are; an infinite or NaN t ends up in the
result on both sides. A product that overflows before the sum and not after is not kept.
Rounding: one rounding for each sum in the place of one for each element.
"""

from __future__ import annotations

import math
import operator

import torch
from torch.fx import Node

from agentkernel.tools.rewrite.draft import Draft
from agentkernel.tools.rewrite.reading import Number, is_number, op_of, rank, static_sizes
from agentkernel.tools.rewrite.record import Change, Rule
from agentkernel.tools.rewrite.reductions import Reduction, reduced, sum_of
from agentkernel.tools.rewrite.terms import Term, applied, flat_along, terms_of

aten = torch.ops.aten
RUNNING = "_native_batch_norm_legit_no_training.default"


def _apply(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    if found is None:
        return None
    if op_of(found.x) == "neg.default":
        inner = reduced(draft, found.kind, found.x.args[0], found.dims)  # type: ignore[arg-type]
        new = draft.squeeze(draft.call(aten.neg.default, inner), found.dims, found.keep)
        return Change(f"{node.name}: {found.word}(-x) = -{found.word}(x)", {node: new})
    for term in terms_of(found.x):
        change = _past(draft, node, found, term)
        if change is not None:
            return change
    return _running_norm(draft, node, found)


def _past(draft: Draft, node: Node, found: Reduction, term: Term) -> Change | None:
    if not flat_along(term.other, found.dims, rank(found.x)):
        return None
    other: Node | Number = term.other
    if term.verb in ("mul", "div"):
        if not draft.parametric(other) or (term.verb == "div" and isinstance(other, Node)):
            return None
        if is_number(other) and other == 0:
            return None
        line = f"{found.word}(x {term.verb} a) = {found.word}(x) {term.verb} a"
    elif found.kind == "mean":
        line = f"mean(x {term.verb} t) = mean(x) {term.verb} t"
    else:
        sizes = static_sizes(found.x, found.dims)
        if sizes is None:
            return None
        count = math.prod(sizes)
        other = (
            draft.call(aten.mul.Tensor, other, count) if isinstance(other, Node) else other * count
        )
        line = f"sum(x {term.verb} t) = sum(x) {term.verb} {count} t"
    new = applied(draft, term, reduced(draft, found.kind, term.x, found.dims), other)
    return Change(f"{node.name}: {line}", {node: draft.squeeze(new, found.dims, found.keep)})


def _running_norm(draft: Draft, node: Node, found: Reduction) -> Change | None:
    """Batch norm at inference is affine in each channel."""
    source = found.x.args[0] if op_of(found.x) == "getitem" else None
    if not isinstance(source, Node) or op_of(source) != RUNNING or found.x.args[1] != 0:
        return None
    if found.kind != "mean" or 1 in found.dims or not all(map(draft.parametric, source.args[1:])):
        return None
    inner = reduced(draft, "mean", source.args[0], found.dims)  # type: ignore[arg-type]
    norm = draft.call(source.target, inner, *source.args[1:])  # type: ignore[arg-type]
    new = draft.squeeze(draft.call(operator.getitem, norm, 0), found.dims, found.keep)
    return Change(f"{node.name}: mean(bn(x)) = bn(mean(x)), running statistics", {node: new})


RULE = Rule("scaled sums", _apply)
