"""Is a node one addition or multiplication, and of what?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import (
    Number,
    base_op,
    dtype,
    expression,
    floating,
    is_number,
    op_of,
    rank,
    shape,
)

aten = torch.ops.aten
Verb = Literal["add", "sub", "mul", "div"]
TERM_OPS = {"add": aten.add.Tensor, "sub": aten.sub.Tensor, "mul": aten.mul.Tensor,
       "div": aten.div.Tensor}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """`x` verb `other`, where `x` has the shape and dtype of the result.

    `swapped`: it reads other verb x (only for `sub`: other - x).
    """

    verb: Verb
    x: Node
    other: Node | Number
    swapped: bool = False


def terms_of(node: Node) -> Iterator[Term]:
    """The ways to read a node as x verb other; either operand of a sum or product may be x."""
    if not floating(node) or len(node.args) < 2:
        return
    if base_op(node) == "rsub" and not node.kwargs and len(node.args) == 2:
        if _carries(node, node.args[0]) and _operand(node.args[1]):
            yield Term("sub", node.args[0], node.args[1], swapped=True)  # type: ignore[arg-type]
        return
    if base_op(node) not in TERM_OPS or node.kwargs or len(node.args) > 2:
        return
    if op_of(node).split(".")[-1] not in ("Tensor", "Scalar"):
        return
    verb: Verb = base_op(node)  # type: ignore[assignment]
    left, right = node.args
    if _carries(node, left) and _operand(right):
        yield Term(verb, left, right)  # type: ignore[arg-type]
    if verb != "div" and isinstance(right, Node) and _carries(node, right) and _operand(left):
        yield Term(verb, right, left, swapped=verb == "sub")  # type: ignore[arg-type]


def _operand(value: object) -> bool:
    return is_number(value) or floating(value)


def _carries(node: Node, operand: object) -> bool:
    if not floating(operand) or dtype(operand) != dtype(node) or rank(operand) != rank(node):
        return False
    sizes = zip(shape(operand), shape(node), strict=True)
    return all(expression(a) == expression(b) for a, b in sizes)


def constant_along(other: Node | Number, dims: tuple[int, ...], full: int) -> bool:
    """True where `other`, broadcast to rank `full`, does not change along `dims`."""
    if not isinstance(other, Node):
        return True
    sizes = shape(other)
    missing = full - len(sizes)
    return all(dim < missing or expression(sizes[dim - missing]) == 1 for dim in dims)


def applied(draft: Draft, term: Term, x: Node, other: Node | Number) -> Node:
    """The same operation on another x."""
    op = TERM_OPS[term.verb]
    if not term.swapped:
        return draft.call(op, x, other)
    if isinstance(other, Node):
        return draft.call(op, other, x)
    return draft.call(aten.rsub.Scalar, x, other)


def name_of(value: Node | Number) -> str:
    """An operand for people: of a view, what it looks at."""
    while isinstance(value, Node) and value.target == aten.view.default:
        value = value.args[0]  # type: ignore[assignment]
    return value.name if isinstance(value, Node) else f"{value:g}"
