"""What does a graph cost: how many operations, and bytes through memory?"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from agentkernel.compiler.rewrite.record import Cost
from agentkernel.tools.roofline.op_cost import SizeOf, is_free, op_cost, stored_bytes


@dataclass(frozen=True)
class NodeCost:
    """One call as a launch of its own; `written`: bytes of its result; `fuses`: pointwise."""

    flops: int
    bytes_moved: int
    written: int
    fuses: bool


FREE = NodeCost(0, 0, 0, fuses=False)


def graph_cost(graph: Graph, size_of: SizeOf, known: MutableMapping[Node, NodeCost]) -> Cost:
    """Operations and bytes of what the outputs need; `known` remembers nodes between calls.

    Each call reads its operands and writes its result; a pointwise call's result that pointwise
    calls alone read is not stored, as in any compiler's kernels.
    """
    flops = moved = 0
    needed = live_nodes(graph)
    for node in needed:
        if node not in known:
            known[node] = node_cost(node, size_of)
    for node in needed:
        cost = known[node]
        flops += cost.flops
        moved += cost.bytes_moved
        readers = [user for user in node.users if user in needed] if cost.fuses else []
        if readers and all(known[user].fuses for user in readers):
            moved -= (1 + len(readers)) * cost.written
    return Cost(flops, moved)


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that the outputs depend on."""
    found: set[Node] = set()
    pending: list[Node] = [graph.output_node()]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def node_cost(node: Node, size_of: SizeOf) -> NodeCost:
    """One node's operations and bytes; views and sizes are free, an operand is read once."""
    if node.op != "call_function" or is_free(node.target):
        return FREE
    results = list(_tensors([node.meta.get("val")]))
    if not results:
        return FREE
    args = [_value(item) for item in node.args]
    found = op_cost(node.target, args, node.meta["val"], size_of)
    listed = [item for item in node.args if isinstance(item, Node)]
    again = [item for index, item in enumerate(listed) if item in listed[:index]]
    twice = sum(stored_bytes(x, size_of) for item in again for x in _tensors([item.meta["val"]]))
    written = sum(stored_bytes(item, size_of) for item in results)
    return NodeCost(
        found.flops, found.bytes_moved - twice, written, fuses=found.kind == "pointwise"
    )


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
