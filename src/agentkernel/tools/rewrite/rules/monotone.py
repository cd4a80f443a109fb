"""Which pointwise functions may wait until a maximum has been taken?

Derivation: f that never falls keeps order, so max_i f(x_i) = f(max_i x_i) and min_i f(x_i) =
f(min_i x_i); one that never rises swaps the two: max_i f(x_i) = f(min_i x_i). Max pooling is a
maximum over windows. x + t with t the same along the dimension is such an f for each t.
Conditions: f is in the table below, or adds or multiplies a number (not 0) or adds something made
of parameters that does not change along the dimension; the place of the maximum is not read (ties
that f makes would move it).
NaN and infinities: max and min give NaN where an element is NaN, and every f of the table gives
NaN for NaN and only for NaN, so a NaN stays and none is born. That is why log and sqrt are not in
it.
Rounding: a computed f may fall by an ulp where the true one rises; the result is within an ulp.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.tools.rewrite.draft import Draft
from agentkernel.tools.rewrite.intervals import bounds
from agentkernel.tools.rewrite.pools import pool_of
from agentkernel.tools.rewrite.reading import argument, floating, is_number, op_of, rank
from agentkernel.tools.rewrite.record import Change, Rule
from agentkernel.tools.rewrite.reductions import Reduction, extremum_of, reduced
from agentkernel.tools.rewrite.terms import Term, applied, flat_along, terms_of

aten = torch.ops.aten
RISING = frozenset(
    f"{name}.default"
    for name in (
        "relu", "relu6", "sigmoid", "tanh", "exp", "exp2", "expm1", "erf", "hardsigmoid", "selu",
        "softsign", "log_sigmoid", "atan", "asinh", "floor", "ceil", "sign",
    )
)  # fmt: skip
SIGNED = {
    "elu.default": ("alpha", "scale", "input_scale"),
    "leaky_relu.default": ("negative_slope",),
    "softplus.default": ("beta",),
    "celu.default": ("alpha",),
}
"""Functions that rise where these arguments are positive."""


@dataclass(frozen=True)
class _Step:
    """A pointwise function of x: a unary call, or a term."""

    x: Node
    falling: bool
    word: str
    term: Term | None = None


def _apply(draft: Draft, node: Node) -> Change | None:
    found = extremum_of(node)
    if found is not None:
        return _past_extremum(draft, node, found)
    pool = pool_of(node)
    if pool is None or pool.kind != "max":
        return None
    step = _step(draft, pool.x, pool.space)
    if step is None or step.falling:
        return None
    new = draft.call(node.target, step.x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    line = f"{node.name}: maxpool({step.word}) = {step.word} of the pooled x"
    return Change(line, {node: _again(draft, pool.x, step, new)})


def _past_extremum(draft: Draft, node: Node, found: Reduction) -> Change | None:
    step = _step(draft, found.x, found.dims)
    if step is None:
        return None
    kind = found.kind
    if step.falling:
        kind = "amin" if kind == "amax" else "amax"
    new = _again(draft, found.x, step, reduced(draft, kind, step.x, found.dims))
    line = f"{node.name}: {found.word}({step.word}) = {step.word} at the {kind[1:]} of x"
    return Change(line, {node: draft.squeeze(new, found.dims, found.keep)})


def _step(draft: Draft, node: Node, dims: tuple[int, ...]) -> _Step | None:
    name = op_of(node)
    x = node.args[0] if node.args else None
    if not floating(x) or not floating(node):
        return None
    if name == "neg.default":
        return _Step(x, True, "-x")
    limits = bounds(node)
    if name in RISING or (limits is not None and limits[0] <= limits[1]) or _rises(node):
        return _Step(x, False, f"{name.split('.')[0]}(x)")
    for term in terms_of(node):
        made = _term_step(draft, term, dims, rank(node))
        if made is not None:
            return made
    return None


def _rises(node: Node) -> bool:
    names = SIGNED.get(op_of(node))
    if names is None:
        return False
    values = [argument(node, name) for name in names]
    return all(is_number(value) and value > 0 for value in values)


def _term_step(draft: Draft, term: Term, dims: tuple[int, ...], full: int) -> _Step | None:
    if term.verb in ("add", "sub"):
        if not draft.parametric(term.other) or not flat_along(term.other, dims, full):
            return None
        return _Step(term.x, term.swapped, f"x {term.verb} c", term)
    if not is_number(term.other) or term.other == 0:
        return None
    return _Step(term.x, term.other < 0, f"x {term.verb} {term.other:g}", term)


def _again(draft: Draft, node: Node, step: _Step, x: Node) -> Node:
    """The function of `node` on the extremum."""
    if step.term is not None:
        return applied(draft, step.term, x, step.term.other)
    return draft.call(node.target, x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]


RULE = Rule("monotone", _apply)
