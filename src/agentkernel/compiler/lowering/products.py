"""Lowerings of linear layers and matrix products to one kind of product with additions around it.

A product with one or two columns is no work for tensor cores: a tile would be padding mostly. It
becomes a multiplication and a sum over each row, so that its operands are read once, by the
kernel that also does what comes before and after. The row or column of a computed value that it
reads is an expression of its own and need not be stored.
"""

from __future__ import annotations

import math

import sympy
import torch

from agentkernel.compiler.ir import (
    ONE,
    GraphBuilder,
    Node,
    Scalar,
    Shape,
    UnsupportedOp,
    numel,
    same,
)
from agentkernel.compiler.lowering.pointwise import scaled_node
from agentkernel.compiler.lowering.reductions import softmax_over
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

WIDEST_HEAD = 256
"""Wider heads have no kernel of flash attention; ours holds a row of the result in registers."""
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


PRODUCT_TYPES = (torch.float32, torch.float16, torch.bfloat16)
NARROW = 2
"""Most columns of a product that is lowered as sums over rows."""


def product(state: Lowering, a: Node, b: Node, *, rounded: bool = True) -> Node:
    """a[..., M, K] @ b[..., K, N] as one node; operands may be views (a transposed weight). Not
    `rounded`, sums over rows stay in the type that they were computed in, for what is added."""
    columns = b.shape[-1]
    if len(b.shape) == 2 and columns.is_number and int(columns) <= NARROW:
        return _narrow(state, a, b, rounded)
    shape = (*a.shape[:-1], b.shape[-1])
    operands = (state.written_out(a), state.written_out(b))
    return state.b.library("product", operands, a.dtype, shape, state.call)


def _narrow(state: Lowering, a: Node, b: Node, rounded: bool) -> Node:
    """a[..., M, K] @ b[K, N] for N of 1 or 2: [..., M, N], each column a sum over rows."""
    build = state.b
    sums = [
        build.reduce(
            "sum",
            build.pointwise("mul", state.compute(a), state.compute(_column(state, b, index))),
            (len(a.shape) - 1,),
        )
        for index in range(int(b.shape[-1]))
    ]
    columns = [state.cast(item, a.dtype) for item in sums] if rounded else sums
    if len(columns) == 1:
        return columns[0]
    places = build.iota((sympy.Integer(len(columns)),), 0)
    return build.pointwise("where", build.pointwise("eq", places, 0), *columns)


def _column(state: Lowering, b: Node, index: int) -> Node:
    """Column `index` of b[K, N] as [K]; of a turned weight its row, computed alone if it can be."""
    turned = b.kind == "view" and b.op == "permute" and b.attrs == (1, 0)
    found = slice_at(state.b, b.args[0], 0, index) if turned else slice_at(state.b, b, 1, index)
    return state.b.reshape(found, (b.shape[0],))


def _plain(a: Node, b: Node) -> bool:
    """True where the product is a flat one, or batched with equal leading dimensions."""
    if not multiplied(a, b) or len(a.shape) < 2:
        return False
    if len(b.shape) == 2:
        return True
    return len(a.shape) == len(b.shape) and all(map(same, a.shape[:-2], b.shape[:-2]))


def multiplied(a: Node, b: Node) -> bool:
    """True for types that products have."""
    return a.dtype in PRODUCT_TYPES and a.dtype == b.dtype


def _refuse(call: str) -> UnsupportedOp:
    return UnsupportedOp(call, "of these types or dimensions")


def linear(state: Lowering, x: Node, weight: Node, bias: Node | None = None) -> Node:
    """x @ weight^T + bias. Raises UnsupportedOp."""
    if not _plain(x, weight) or len(weight.shape) != 2:
        raise _refuse("aten.linear")
    result = product(state, x, state.b.permute(weight, (1, 0)), rounded=bias is None)
    if bias is None:
        return result
    return state.b.pointwise("add", state.compute(result), state.compute(bias))


lowers("linear.default")(linear)


@lowers("bilinear.default")
def _bilinear(state: Lowering, x: Node, y: Node, weight: Node, bias: Node | None = None) -> Lowered:
    """The sum of x_i W_oij y_j over i and j: by a product with x and a sum of its columns times y,
    or, where that is the smaller value in memory, by a product of all x_i y_j."""
    b, lead, (out, ours, theirs) = state.b, x.shape[:-1], weight.shape
    if not (multiplied(x, y) and multiplied(x, weight)) or len(lead) == 0:
        raise _refuse("aten.bilinear")
    rows = (numel(lead),)
    x, y = b.reshape(x, (*rows, ours)), b.reshape(y, (*rows, theirs))
    if (out - ours).is_nonpositive:
        columns = b.reshape(b.permute(weight, (1, 0, 2)), (ours, out * theirs))
        found = state.compute(product(state, x, columns))
        parts = b.reshape(found, (*rows, out, theirs))
        each = b.pointwise("mul", parts, b.reshape(state.compute(y), (*rows, ONE, theirs)))
        found = b.reshape(b.reduce("sum", each, (2,)), (*rows, out))
    else:
        left, right = b.reshape(x, (*rows, ours, ONE)), b.reshape(y, (*rows, ONE, theirs))
        pairs = b.pointwise("mul", left, right, dtype=x.dtype, name="pairs")
        pairs = b.reshape(pairs, (*rows, ours * theirs))
        turned = b.permute(b.reshape(weight, (out, ours * theirs)), (1, 0))
        found = state.compute(product(state, pairs, turned, rounded=bias is None))
    found = found if bias is None else b.pointwise("add", found, state.compute(bias))
    return b.reshape(found, state.shape)


@lowers("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default",
        "vdot.default")  # fmt: skip
def _matmul(state: Lowering, x: Node, y: Node) -> Lowered:
    if not multiplied(x, y):
        raise _refuse("aten.matmul")
    if len(y.shape) == 1:
        return _rows_by(state, x, y)
    if len(x.shape) == 1:
        order = (*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2)
        return _rows_by(state, state.b.permute(y, order), x)
    if not _plain(x, y):
        x, y = batched(state, x, y)
    return product(state, x, y)


def _rows_by(state: Lowering, x: Node, vector: Node) -> Node:
    """x[..., K] by vector[K], a sum over each row."""
    b = state.b
    found = b.pointwise("mul", state.compute(x), state.compute(vector))
    return b.reshape(b.reduce("sum", found, (len(x.shape) - 1,)), x.shape[:-1])


def batched(state: Lowering, x: Node, y: Node) -> tuple[Node, Node]:
    """The operands of a matmul with the leading dimensions of both."""
    b = state.b
    if len(state.shape) > 4:
        raise _refuse("aten.matmul")
    lead = state.shape[:-2]

    def spread(value: Node) -> Node:
        missing = len(lead) + 2 - len(value.shape)
        whole = b.reshape(value, ((ONE,) * missing + value.shape))
        return b.expand(whole, (*lead, *value.shape[-2:]))

    return spread(x), spread(y)


@lowers("scaled_dot_product_attention.default")
def _wide_attention(
    state: Lowering, query: Node, key: Node, value: Node, mask: Node | None = None,
    dropout: Scalar = 0.0, causal: bool = False, scale: Scalar | None = None,
    enable_gqa: bool = False,
) -> Lowered:  # fmt: skip
    """Attention of heads too wide for one kernel as two products with a softmax between them. In
    fp16 the query is scaled, not the scores: these might go past its range."""
    b, wide = state.b, state.hint(query.shape[-1]) > WIDEST_HEAD
    if not wide or mask is not None or dropout or enable_gqa or not multiplied(query, key):
        raise _refuse("aten.scaled_dot_product_attention")
    rank = len(key.shape)
    turned = b.permute(key, (*range(rank - 2), rank - 1, rank - 2))
    if not (_plain(query, turned) and multiplied(query, value)):
        raise _refuse("aten.scaled_dot_product_attention")
    root = b.pointwise("sqrt", b.pointwise("mul", b.size(query.shape[-1]), 1.0))
    how, by = ("div", root) if scale is None else ("mul", b.constant(float(scale)))
    early = query.dtype == torch.float16
    if early:
        query = state.cast(b.pointwise(how, state.compute(query), by), query.dtype)
    scores = state.compute(product(state, query, turned))
    scores = scores if early else b.pointwise(how, scores, by)
    if causal:
        row, column = b.iota(scores.shape, rank - 2), b.iota(scores.shape, rank - 1)
        scores = b.pointwise("where", b.pointwise("le", column, row), scores, -math.inf)
    weights = state.cast(softmax_over(state, scores, (rank - 1,)), query.dtype)
    return product(state, weights, value)


@lowers("addmv.default")
def _addmv(
    state: Lowering, bias: Node, x: Node, y: Node, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Lowered:
    if not multiplied(x, y):
        raise _refuse("aten.addmv")
    return _added(state, bias, _rows_by(state, x, y), beta, alpha)


@lowers("addmm.default", "baddbmm.default")
def _addmm(
    state: Lowering, bias: Node, x: Node, y: Node, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Lowered:
    if not _plain(x, y):
        raise _refuse("aten.addmm")
    return _added(state, bias, product(state, x, y, rounded=False), beta, alpha)


def _added(state: Lowering, bias: Node, found: Node, beta: Scalar, alpha: Scalar) -> Node:
    """beta * bias + alpha * found; a bias that counts nothing may be NaN."""
    result = scaled_node(state, state.compute(found), alpha)
    if beta == 0:
        return result
    return state.b.pointwise("add", result, scaled_node(state, state.compute(bias), beta))
