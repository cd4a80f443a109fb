"""Which expression is one row or column of a computed value, so that it need not be stored?"""

from __future__ import annotations

import sympy

from agentkernel.compiler.ir import ONE, GraphBuilder, Node, Scalar, Shape

MAX_RECOMPUTED = 2
"""Longest dimension that is cut by computing a part again instead of storing the whole."""


def slice_at(b: GraphBuilder, value: Node, dim: int, index: int) -> Node:
    """Place `index` of `value` along `dim`, which stays as size 1.

    Along a dimension of at most LONGEST places the expression of that part alone, where `value`
    has one; else a slice of what is stored.
    """
    size = value.shape[dim]
    if size.is_number and int(size) <= MAX_RECOMPUTED:
        found = _expression(b, value, dim, index)
        # What is known to be constant has lost its shape, and nobody broadcasts it again here.
        if found is not None and found.shape == _cut(value, dim):
            return found
    return b.slice(value, dim, sympy.Integer(index), ONE)


def _cut(value: Node, dim: int) -> Shape:
    return (*value.shape[:dim], ONE, *value.shape[dim + 1 :])


def _expression(b: GraphBuilder, value: Node, dim: int, index: int) -> Node | None:
    """The part's expression, or one that broadcasts to it where constants decide some of it."""
    if value.shape[dim] == 1:
        return value
    if value.kind == "iota":
        return b.constant(index, value.dtype) if value.attrs == (dim,) else None
    if value.kind == "view" and value.op == "reshape":
        return _reshaped(b, value, dim, index)
    if value.kind == "pointwise":
        return _pointwise(b, value, dim, index)
    if value.kind in ("input", "library"):
        return b.slice(value, dim, sympy.Integer(index), ONE)
    return None


def _pointwise(b: GraphBuilder, value: Node, dim: int, index: int) -> Node | None:
    """The operation on the parts of its operands; what is known of them is worked out."""
    parts: list[Node] = []
    for operand in value.operands:
        own = dim - (len(value.shape) - len(operand.shape))
        found = _expression(b, operand, own, index) if own >= 0 else operand
        if found is None:
            return None
        parts.append(found)
    if value.op == "gather":
        return b.gather(value.args[-1], *parts)
    known = _known(value.op, parts)
    if isinstance(known, Node):
        return known if known.dtype == value.dtype and known.shape == _cut(value, dim) else None
    if known is not None:
        return b.constant(known, value.dtype)
    return b.pointwise(value.op, *parts, dtype=value.dtype, name=value.name)


def _known(op: str, parts: list[Node]) -> Scalar | Node | None:
    """The result where constants decide it: of a comparison, a choice or an alternative."""
    first = _number(parts[0])
    if op == "where" and first is not None:
        return parts[1] if first else parts[2]
    if op == "logical_or":
        second = _number(parts[1])
        if first or second:
            return True
        return parts[1] if first is not None else parts[0] if second is not None else None
    second = _number(parts[1]) if len(parts) == 2 else None
    if op == "eq" and first is not None and second is not None:
        return first == second
    return None


def _number(node: Node) -> Scalar | None:
    value = node.attrs[0] if node.kind == "constant" else None
    return value if isinstance(value, int | float) else None


def _reshaped(b: GraphBuilder, value: Node, dim: int, index: int) -> Node | None:
    """Through a reshape that only adds or drops dimensions of size 1."""
    below = value.args[0]
    places = [at for at, size in enumerate(below.shape) if size != 1]
    kept = [at for at, size in enumerate(value.shape) if size != 1]
    if [below.shape[at] for at in places] != [value.shape[at] for at in kept]:
        return None
    found = _expression(b, below, places[kept.index(dim)], index)
    if found is None or not found.shape:
        return found
    if found.shape != _cut(below, places[kept.index(dim)]):
        return None
    return b.reshape(found, _cut(value, dim))
