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

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import Number, op_of, rank, static_sizes
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import Reduction, reduced, sum_of
from agentkernel.compiler.rewrite.terms import Term, applied, constant_along, name_of, terms_of

aten = torch.ops.aten
RUNNING = "_native_batch_norm_legit_no_training.default"


def _move_past_sum(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    if found is None:
        return None
    words: list[str] = []
    new = draft.squeeze(_waiting(draft, found, found.x, words), found.dims, found.keep)
    line = f"{node.name}: {', '.join(reversed(words))} wait for the {found.word}"
    return Change(line, {node: new}) if words else None


def _waiting(draft: Draft, found: Reduction, x: Node, words: list[str]) -> Node:
    """The sum or mean of `x` (dimensions kept), with every map that may wait after it."""
    if op_of(x) == "neg.default":
        words.append("-x")
        inner = _waiting(draft, found, x.args[0], words)  # type: ignore[arg-type]
        return draft.call(aten.neg.default, inner)
    for term in terms_of(x):
        other = _waiting_operand(draft, found, term)
        if other is not None:
            words.append(f"x {term.verb} {name_of(term.other)}")
            return applied(draft, term, _waiting(draft, found, term.x, words), other)
    norm = running_norm(draft, x)
    if norm is not None and found.kind == "mean" and 1 not in found.dims:
        words.append("batch norm with running statistics")
        inner = _waiting(draft, found, norm.args[0], words)  # type: ignore[arg-type]
        new = draft.call(norm.target, inner, *norm.args[1:])  # type: ignore[arg-type]
        return draft.call(operator.getitem, new, 0)
    return reduced(draft, found.kind, x, found.dims)


def _waiting_operand(draft: Draft, found: Reduction, term: Term) -> Node | Number | None:
    """What is added to, or multiplied with, the sum in the place of each element."""
    other = term.other
    if not constant_along(other, found.dims, rank(found.x)):
        return None
    if term.verb in ("mul", "div"):
        allowed = draft.parametric(other) and other != 0
        return None if (term.verb == "div" and isinstance(other, Node)) or not allowed else other
    if found.kind == "mean":
        return other
    sizes = static_sizes(found.x, found.dims)
    if sizes is None:
        return None
    count = math.prod(sizes)
    return draft.call(aten.mul.Tensor, other, count) if isinstance(other, Node) else other * count


def running_norm(draft: Draft, node: Node) -> Node | None:
    """The batch norm with running statistics whose result `node` is."""
    source = node.args[0] if op_of(node) == "getitem" and node.args[1] == 0 else None
    if not isinstance(source, Node) or op_of(source) != RUNNING:
        return None
    return source if all(map(draft.parametric, source.args[1:])) else None


SCALED_SUMS = Rule("scaled sums", _move_past_sum)
