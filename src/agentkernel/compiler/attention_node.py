"""How does attention stand in the IR: one node for what one kernel serves?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx

from agentkernel.compiler.attention_match import AttentionMatch, find_attention
from agentkernel.compiler.ir import GraphBuilder, Node, same

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
