"""Which factor do two added terms share?

Derivation: a x + a y = a (x + y), x / a + y / a = (x + y) / a; X W + Y W = (X + Y) W, which saves
a whole product; and X V + X W = X (V + W).
Conditions: the same node or number a; W made of parameters; subtraction likewise.
NaN and infinities: a must be finite: a number, made of parameters, or in a bounded range, as a
gate is behind its sigmoid. x = inf, y = -inf is NaN in both. X V + X W is for finite values only:
inf V + inf W is NaN where the signs differ, inf (V + W) is not.
Rounding: x + y is rounded once where both products were; where x and y cancel, it is exact.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.intervals import value_range
from agentkernel.compiler.rewrite.products import Product, multiplied, product_of
from agentkernel.compiler.rewrite.reading import dtype, is_number, op_of, same_shape
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.terms import TERM_OPS, Term, name_of, terms_of

aten = torch.ops.aten


def _factor_out(draft: Draft, node: Node) -> Change | None:
    if op_of(node) not in ("add.Tensor", "sub.Tensor") or node.kwargs or len(node.args) != 2:
        return None
    left, right = node.args
    if not isinstance(left, Node) or not isinstance(right, Node) or not same_shape(left, right):
        return None
    if dtype(left) != dtype(right):
        return None
    op = TERM_OPS["add" if op_of(node) == "add.Tensor" else "sub"]
    for one in terms_of(left):
        for two in terms_of(right):
            if _shared(draft, one, two):
                both = draft.call(op, one.x, two.x)
                new = draft.call(TERM_OPS[one.verb], both, one.other)
                line = (
                    f"{node.name}: x {one.verb} a and y {one.verb} a share a = {name_of(one.other)}"
                )
                return Change(line, {node: new})
    return _products(draft, node, left, right)


def _shared(draft: Draft, one: Term, two: Term) -> bool:
    if one.verb != two.verb or one.verb not in ("mul", "div") or not same_shape(one.x, two.x):
        return False
    if is_number(one.other) or is_number(two.other):
        return one.other == two.other
    if one.other is not two.other or one.verb == "div":
        return False
    bounded = all(map(math.isfinite, value_range(draft, one.other)))
    return draft.parametric(one.other) or bounded


def _products(draft: Draft, node: Node, left: Node, right: Node) -> Change | None:
    one, two = product_of(left), product_of(right)
    if one is None or two is None or one.turned != two.turned or one.batched != two.batched:
        return None
    op = TERM_OPS["add" if op_of(node) == "add.Tensor" else "sub"]
    if one.right is two.right and draft.parametric(one.right) and same_shape(one.left, two.left):
        new = multiplied(draft, one, draft.call(op, one.left, two.left), one.right)
        line = f"{node.name}: X W and Y W share W = {one.right.name}"
    elif one.left is two.left and not draft.infinities and same_shape(one.right, two.right):
        if not (draft.parametric(one.right) and draft.parametric(two.right)):
            return None
        new = multiplied(draft, one, one.left, draft.call(op, one.right, two.right))
        line = f"{node.name}: X V and X W share X = {one.left.name}"
    else:
        return None
    return Change(line, {node: _with_biases(draft, new, one, two, op)})


def _with_biases(draft: Draft, new: Node, one: Product, two: Product, op: object) -> Node:
    if one.bias is not None:
        new = draft.call(aten.add.Tensor, new, one.bias)
    if two.bias is not None:
        new = draft.call(op, new, two.bias)  # type: ignore[arg-type]
    return new


COMMON_FACTORS = Rule("common factors", _factor_out)
