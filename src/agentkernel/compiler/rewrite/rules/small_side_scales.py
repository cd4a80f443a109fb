"""When is a number multiplied into a weight instead of what it makes?

Derivation: a (x W + b) = x (a W) + a b, and (a x) W = x (a W); convolutions likewise.
Conditions: a is a number (not 0), the weight is made of parameters, wider than 16 bits or a is a
power of two, and has at most a sixteenth of the bytes of what was scaled: a fused kernel scales
its result for nothing, so only a small weight is worth a launch.
NaN and infinities: a W is finite with W, of the same or the opposite signs; as before.
Rounding: W is rounded once more, the result once less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import convolution_of
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.products import product_of
from agentkernel.compiler.rewrite.reading import NARROW, is_number, single_user, tensor
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.terms import Term, applied, terms_of
from agentkernel.tools.roofline.op_cost import stored_bytes

SMALL = 16


@dataclass(frozen=True)
class _Call:
    """A product or convolution: x, weight and bias."""

    node: Node
    x: Node
    weight: Node
    bias: Node | None


def _scale_weight(draft: Draft, node: Node) -> Change | None:
    for term in terms_of(node):
        call = _weighted(draft, term.x) if _scales(term) and single_user(term.x) else None
        if call is not None:
            return _moved(draft, node, call, term, whole=True)
    call = _weighted(draft, node)
    for term in terms_of(call.x) if call is not None else ():
        if call is not None and _scales(term) and single_user(call.x):
            return _moved(draft, node, call, term, whole=False)
    return None


def _scales(term: Term) -> bool:
    value = term.other
    return term.verb in ("mul", "div") and is_number(value) and value != 0


def _weighted(draft: Draft, node: Node) -> _Call | None:
    product, convolution = product_of(node), convolution_of(node)
    found = None
    if product is not None:
        found = _Call(node, product.left, product.right, product.bias)
    elif convolution is not None:
        found = _Call(node, convolution.x, convolution.weight, convolution.bias)
    return found if found is not None and draft.parametric(found.weight) else None


def _moved(draft: Draft, node: Node, call: _Call, term: Term, *, whole: bool) -> Change | None:
    """`call` with its weight scaled: in the place of its scaled result, or of its scaled input."""
    scaled, small = tensor(node if whole else term.x), tensor(call.weight)
    if scaled is None or small is None or not is_number(term.other):
        return None
    if SMALL * stored_bytes(small, draft.size_of) > stored_bytes(scaled, draft.size_of):
        return None
    if small.dtype in NARROW and abs(math.frexp(term.other)[0]) != 0.5:
        return None
    given = {call.weight: applied(draft, term, call.weight, term.other)}
    if whole and call.bias is not None:
        given[call.bias] = applied(draft, term, call.bias, term.other)
    if not whole:
        given[call.x] = term.x
    source = call.node
    args = [given.get(item, item) if isinstance(item, Node) else item for item in source.args]
    new = draft.call(source.target, *args, **source.kwargs)  # type: ignore[arg-type]
    line = f"{node.name}: {term.verb} by {term.other:g} moves into {call.weight.name}"
    return Change(line, {node: new})


SMALL_SIDE_SCALES = Rule("small-side scales", _scale_weight)
