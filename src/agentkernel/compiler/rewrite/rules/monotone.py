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

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.intervals import bounds
from agentkernel.compiler.rewrite.pools import Pool, pool_of
from agentkernel.compiler.rewrite.reading import argument, floating, is_number, op_of, rank
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import Kind, Reduction, extremum_of, reduced
from agentkernel.compiler.rewrite.terms import Term, applied, constant_along, terms_of

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


def _move_past_extremum(draft: Draft, node: Node) -> Change | None:
    found = extremum_of(node)
    words: list[str] = []
    if found is not None:
        new = _past_extremum(draft, found, found.kind, found.x, words)
        new = draft.squeeze(new, found.dims, found.keep)
        line = f"{node.name}: the {found.word} comes before {_chain(words)}, which keep order"
        return Change(line, {node: new}) if words else None
    pool = pool_of(node)
    if pool is None or pool.kind != "max":
        return None
    new = _past_pool(draft, node, pool, pool.x, words)
    line = f"{node.name}: max pooling comes before {_chain(words)}, which keep order"
    return Change(line, {node: new}) if words else None


def _chain(words: list[str]) -> str:
    return ", ".join(reversed(words))


def _past_pool(draft: Draft, node: Node, pool: Pool, x: Node, words: list[str]) -> Node:
    """The max pooling of `x`, with every rising function after it."""
    step = _step(draft, x, pool.space)
    if step is None or step.falling:
        return draft.call(node.target, x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    words.append(step.word)
    return _again(draft, x, step, _past_pool(draft, node, pool, step.x, words))


def _past_extremum(draft: Draft, found: Reduction, kind: Kind, x: Node, words: list[str]) -> Node:
    """The extremum of `x` with every monotone function after it; dimensions kept."""
    step = _step(draft, x, found.dims)
    if step is None:
        return reduced(draft, kind, x, found.dims)
    words.append(step.word)
    other: Kind = "amin" if kind == "amax" else "amax"
    inner = _past_extremum(draft, found, other if step.falling else kind, step.x, words)
    return _again(draft, x, step, inner)


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
        if not draft.parametric(term.other) or not constant_along(term.other, dims, full):
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


MONOTONE = Rule("monotone", _move_past_extremum)
