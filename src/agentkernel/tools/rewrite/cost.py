"""What does a graph cost if every op is one launch: how many operations and bytes?"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

import torch
from torch.fx import Graph, Node

from agentkernel.tools.op_cost import SizeOf, is_free, op_cost
from agentkernel.tools.rewrite.record import Cost


def graph_cost(graph: Graph, size_of: SizeOf, known: MutableMapping[Node, Cost]) -> Cost:
    """Operations and bytes of what the outputs need; `known` remembers nodes between calls."""
    flops = moved = 0
    for node in live(graph):
        if node not in known:
            known[node] = node_cost(node, size_of)
        flops += known[node].flops
        moved += known[node].bytes_moved
    return Cost(flops, moved)


def live(graph: Graph) -> set[Node]:
    """The nodes that the outputs depend on."""
    output = next(iter(reversed(graph.nodes)))
    found: set[Node] = set()
    pending: list[Node] = [output]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def node_cost(node: Node, size_of: SizeOf) -> Cost:
    """One node's operations and bytes; views and sizes are free."""
    if node.op != "call_function" or is_free(node.target):
        return Cost(0, 0)
    if not any(True for _ in _tensors([node.meta.get("val")])):
        return Cost(0, 0)
    args = [_value(item) for item in node.args]
    found = op_cost(node.target, args, node.meta["val"], size_of)
    return Cost(found.flops, found.bytes_moved)


def _value(item: object) -> object:
    if isinstance(item, list | tuple):
        return [_value(part) for part in item]
    return item.meta.get("val") if isinstance(item, Node) else item


def _tensors(values: Iterable[object]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
