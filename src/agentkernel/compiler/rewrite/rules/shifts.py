"""How is a constant taken off a value that a softmax or a norm is about to centre?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import convolution_of
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.products import multiplied, product_of
from agentkernel.compiler.rewrite.reading import Number, argument, rank
from agentkernel.compiler.rewrite.reductions import extremum_of
from agentkernel.compiler.rewrite.terms import constant_along, name_of, terms_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Shift:
    """`rest` + `constant` (minus it where `negative`) is the value that was asked about."""

    rest: Node
    constant: Node | Number
    negative: bool
    word: str


def shift_of(draft: Draft, node: Node, dims: tuple[int, ...]) -> Shift | None:
    """The part of `node` that is added and does not change along `dims`.

    It must be finite: a number, something made of parameters, or the bias of a product or a
    convolution. The largest element of the rest along `dims` counts too where `node` is the rest
    minus it: it is infinite only where an element is.
    """
    for term in terms_of(node):
        if term.verb not in ("add", "sub") or term.swapped:
            continue
        if not constant_along(term.other, dims, rank(node)):
            continue
        if draft.parametric(term.other) or _own_extremum(term.x, term.other, dims):
            return Shift(term.x, term.other, term.verb == "sub", name_of(term.other))
    return _bias(draft, node, dims)


def _own_extremum(x: Node, other: Node | Number, dims: tuple[int, ...]) -> bool:
    found = extremum_of(other) if isinstance(other, Node) else None
    return found is not None and found.kind == "amax" and found.x is x and found.dims == dims


def _bias(draft: Draft, node: Node, dims: tuple[int, ...]) -> Shift | None:
    product = product_of(node)
    if product is not None and product.bias is not None and rank(node) - 1 not in dims:
        if not draft.parametric(product.bias):
            return None
        rest = multiplied(draft, product, product.left, product.right)
        return Shift(rest, product.bias, False, product.bias.name)
    convolution = convolution_of(node)
    if convolution is None or convolution.bias is None or 1 in dims:
        return None
    if not draft.parametric(convolution.bias):
        return None
    names = [item.name for item in node.target._schema.arguments]  # type: ignore[union-attr]
    kept = [None if name == "bias" else argument(node, name) for name in names]
    rest = draft.call(node.target, *kept)  # type: ignore[arg-type]
    return Shift(rest, convolution.bias, False, convolution.bias.name)
