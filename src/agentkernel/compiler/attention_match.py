"""Attention in a captured graph, called by name or written out, and its node in the IR."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, OpaqueUnaryFn_sqrt, ToFloat

from agentkernel.compiler.ir import GraphBuilder, Node, same

aten = torch.ops.aten
MaskKind = Literal["add", "bool", "drop"]
"""What a mask does: it is added; what is True is kept; what is True is dropped."""
PRODUCTS = (aten.matmul.default, aten.bmm.default)
SOFTMAXES = (aten.softmax.int, aten._softmax.default)
SCALED = aten.scaled_dot_product_attention.default


@dataclass(frozen=True, eq=False)
class AttentionMatch:
    """Attention that `result` yields. `key` is K itself, not its transpose; `inner` are the nodes
    that nobody else reads and that a fused kernel makes needless (`result` not among them).

    `mask` is as it stands in the graph, not yet expanded. `scale` multiplies the scores; None
    stands for 1 / sqrt(head dimension), whose size may be symbolic; an expression is over sizes.
    """

    result: fx.Node
    query: fx.Node
    key: fx.Node
    value: fx.Node
    scale: float | sympy.Expr | None
    mask: fx.Node | None
    mask_kind: MaskKind
    causal: bool
    empty_rows: Literal["nan", "zero"]
    inner: tuple[fx.Node, ...]
    grouped: bool = False
    """True where several query heads share one head of keys and values."""


def find_attention(graph: fx.Graph) -> tuple[AttentionMatch, ...]:
    """All attention in a functional ATen graph whose nodes carry `meta["val"]`, in graph order.

    Found are `scaled_dot_product_attention` without dropout and softmax(q @ k^T [* or / number]
    [+ mask]) @ v over the last dimension, with three- or four-dimensional operands.
    """
    found = (_named(node) or _composed(node) for node in graph.nodes)
    return tuple(match for match in found if match is not None)


def _named(node: fx.Node) -> AttentionMatch | None:
    if node.target is not SCALED:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    query, key, value, mask = (given.get(name) for name in names[:4])
    if not all(isinstance(item, fx.Node) for item in (query, key, value)):
        return None
    assert isinstance(query, fx.Node)
    assert isinstance(key, fx.Node)
    assert isinstance(value, fx.Node)
    if given.get("dropout_p", 0.0) != 0.0 or _rank(query) not in (3, 4):
        return None
    scale = given.get("scale")
    if scale is not None and not isinstance(scale, int | float):
        return None
    boolean = isinstance(mask, fx.Node) and mask.meta["val"].dtype == torch.bool
    return AttentionMatch(
        result=node,
        query=query,
        key=key,
        value=value,
        scale=None if scale is None else float(scale),
        mask=mask if isinstance(mask, fx.Node) else None,
        mask_kind="bool" if boolean else "add",
        causal=bool(given.get("is_causal", False)),
        empty_rows="zero",
        inner=(),
        grouped=bool(given.get("enable_gqa", False)),
    )


def _composed(node: fx.Node) -> AttentionMatch | None:
    """softmax(...) @ v, read backwards from the product with v."""
    if node.target not in PRODUCTS or not _lone(node.args[0], SOFTMAXES):
        return None
    softmax, value = node.args[0], node.args[1]
    assert isinstance(softmax, fx.Node)
    scores = softmax.args[0]
    if softmax.args[1] not in (-1, _rank(softmax) - 1) or not isinstance(value, fx.Node):
        return None
    inner, mask = [softmax], None
    kind: MaskKind = "add"
    scale: float | sympy.Expr = 1.0
    if _lone(scores, (aten.masked_fill.Scalar,)) and scores.args[2] == -math.inf:  # type: ignore[union-attr]
        inner.append(scores)  # type: ignore[arg-type]
        scores, mask, kind = scores.args[0], scores.args[1], "drop"  # type: ignore[union-attr]
    elif _lone(scores, (aten.add.Tensor,)) and not scores.kwargs:  # type: ignore[union-attr]
        inner.append(scores)  # type: ignore[arg-type]
        scores, mask = scores.args  # type: ignore[union-attr]
    if mask is not None and not (isinstance(mask, fx.Node) and _rank(mask) <= _rank(softmax)):
        return None
    if _lone(scores, (aten.mul.Tensor, aten.div.Tensor)):
        assert isinstance(scores, fx.Node)
        factor = _factor(scores.args[1])
        if factor is None:
            return None
        scale = 1.0 / factor if scores.target is aten.div.Tensor else factor
        inner.append(scores)
        scores = scores.args[0]
    if not _lone(scores, PRODUCTS):
        return None
    assert isinstance(scores, fx.Node)
    query, key = scores.args[0], _untransposed(scores.args[1])
    if not isinstance(query, fx.Node) or key is None or _rank(query) not in (3, 4):
        return None
    if not _rank(query) == _rank(key) == _rank(value):
        return None
    inner.append(scores)
    return AttentionMatch(
        node,
        query,
        key,
        value,
        scale,
        mask,
        kind,
        False,
        "nan",
        tuple(reversed(inner)),
    )


def _factor(value: object) -> float | sympy.Expr | None:
    """A number other than 0, or one computed from sizes; None for anything else."""
    found = value.meta.get("val") if isinstance(value, fx.Node) else value
    if isinstance(found, torch.SymInt | torch.SymFloat):
        return _plain(found.node.expr)
    return float(found) if isinstance(found, int | float) and found != 0 else None


def _plain(expression: sympy.Expr) -> sympy.Expr:
    """An expression of sizes without the exporter's own functions for floats."""
    done: sympy.Expr = expression.replace(ToFloat, lambda size: size)
    done = done.replace(FloatPow, sympy.Pow).replace(FloatTrueDiv, operator.truediv)
    return done.replace(OpaqueUnaryFn_sqrt, lambda size: sympy.Pow(size, 0.5))


def _lone(item: object, targets: tuple[object, ...]) -> bool:
    """A call of one of `targets` that only one node reads."""
    return isinstance(item, fx.Node) and item.target in targets and len(item.users) == 1


def _untransposed(item: object) -> fx.Node | None:
    """K of a node that is K with its last two dimensions swapped."""
    if not isinstance(item, fx.Node):
        return None
    rank, source = _rank(item), item.args[0] if item.args else None
    swapped = False
    if item.target is aten.transpose.int:
        dims = {int(dim) % rank for dim in item.args[1:3]}  # type: ignore[arg-type]
        swapped = dims == {rank - 1, rank - 2}
    elif item.target is aten.permute.default:
        order = [int(dim) % rank for dim in item.args[1]]  # type: ignore[arg-type, union-attr]
        swapped = order == [*range(rank - 2), rank - 1, rank - 2]
    elif item.target in (aten.mT.default, aten.t.default):
        swapped = True
    return source if swapped and isinstance(source, fx.Node) else None


def _rank(node: fx.Node) -> int:
    return len(node.meta["val"].shape)


ATTENTION_OP = "attention"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class AttentionCalls:
    """Attention of a graph that our kernel serves: by result, and what it makes needless."""

    by_result: Mapping[fx.Node, AttentionMatch]
    inner: frozenset[fx.Node]


def served_attention(graph: fx.Graph) -> AttentionCalls:
    """The attention that the kernel covers: floats of one type, no broadcast heads."""
    found = {match.result: match for match in find_attention(graph) if _served(match)}
    inner = frozenset(node for match in found.values() for node in match.inner)
    return AttentionCalls(found, inner)


def _served(match: AttentionMatch) -> bool:
    q, k, v = (item.meta["val"] for item in (match.query, match.key, match.value))
    if q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return False
    if (
        match.result.meta["val"].dtype != q.dtype
        or len({len(q.shape), len(k.shape), len(v.shape)}) > 1
    ):
        return False
    # Grouped heads of keys and of values each divide those of the queries.
    lead = slice(0, -3) if match.grouped else slice(0, -2)
    pairs = [*zip(q.shape[lead], k.shape[lead], strict=True)]
    pairs += [*zip(q.shape[lead], v.shape[lead], strict=True)]
    pairs += [(k.shape[-2], v.shape[-2]), (q.shape[-1], k.shape[-1])]
    return all(_equal(left, right) for left, right in pairs)


def _equal(left: object, right: object) -> bool:
    if isinstance(left, torch.SymInt) and isinstance(right, torch.SymInt):
        return same(left.node.expr, right.node.expr)
    return isinstance(left, int) and isinstance(right, int) and left == right


def attention_node(
    b: GraphBuilder, match: AttentionMatch, values: Mapping[fx.Node, object]
) -> Node:
    """The IR's node for a match, over the values of its operands."""
    operands = [match.query, match.key, match.value]
    operands += [match.mask] if match.mask is not None else []
    nodes = [values[item] for item in operands]
    q, v = nodes[0], nodes[2]
    assert isinstance(q, Node)
    assert isinstance(v, Node)
    args = [item for item in nodes if isinstance(item, Node)]
    return b._make(
        "library",
        ATTENTION_OP,
        tuple(args),
        q.dtype,
        (*q.shape[:-1], v.shape[-1]),
        (match,),
        ATTENTION_OP,
    )
