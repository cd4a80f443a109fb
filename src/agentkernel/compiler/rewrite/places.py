"""A linear layer of every place along a dimension, a call each, as one of the whole.

A loop over time calls `layer(x[:, t])` for each step: that is `layer(x)[:, t]`, one product that
reads the weight once, in the place of as many launches. Every number is the same sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    Draft,
    argument,
    base_op,
    erase_dead,
    op_of,
    optional_tensor_argument,
    rank,
    same_shape,
    shape,
    static,
    swap,
    tensor_argument,
)
from agentkernel.compiler.rewrite.engine import copied, with_graph
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.model import sizes_of

aten = torch.ops.aten


class _Layer(NamedTuple):
    """What calls of one layer on places of one tensor have in common."""

    x: Node
    dim: int
    weight: Node
    bias: Node | None


def with_places_together(captured: Captured) -> Captured:
    """The graph with such calls as one; itself where there are none."""
    graph = copied(captured)
    placeholders = frozenset(captured.parameters) | frozenset(captured.constants)
    draft = Draft(graph, placeholders, sizes_of(captured))
    calls: dict[_Layer, dict[Node, int]] = {}
    for node in graph.nodes:
        if op_of(node) == "linear.default" and node.name not in captured.computed:
            place = _place(tensor_argument(node, "input"))
            if place is not None:
                x, dim, index = place
                weight, bias = (
                    tensor_argument(node, "weight"),
                    optional_tensor_argument(node, "bias"),
                )
                calls.setdefault(_Layer(x, dim, weight, bias), {})[node] = index
    found = False
    for layer, places in calls.items():
        count = static(shape(layer.x)[layer.dim])
        # With some places left out the whole would be more work than what is asked for.
        if count is None or count < 2 or set(places.values()) != set(range(count)):
            continue
        found = True
        with draft.before(next(iter(places))):
            whole = draft.call(aten.linear.default, layer.x, layer.weight, layer.bias)
        for node, index in places.items():
            with draft.before(node):
                part = draft.call(aten.select.int, whole, layer.dim, index)
                swap({node: part}, draft.added)
    if not found:
        return captured
    erase_dead(graph)
    # The new call reads as the old ones do: what was asked of sizes while its result was made says
    # nothing about which sizes it holds for.
    return replace(with_graph(captured, draft), guards=captured.guards)


def _place(node: Node) -> tuple[Node, int, int] | None:
    """The tensor, a dimension before its last, and the place there that a value is."""
    call: object = node
    if op_of(node) == "getitem":
        call, index = node.args[0], node.args[1]
    elif base_op(node) == "select":
        index = argument(node, "index")  # type: ignore[assignment]
    else:
        return None
    if base_op(call) not in ("select", "unbind") or not isinstance(index, int):
        return None
    assert isinstance(call, Node)
    x, dim = call.all_input_nodes[0], argument(call, "dim")
    while base_op(x) == "slice" and same_shape(x, x.all_input_nodes[0]):
        x = x.all_input_nodes[0]
    count = rank(x)
    assert isinstance(dim, int)
    dim %= count
    size = static(shape(x)[dim])
    if dim == count - 1 or size is None:
        return None
    return x, dim, index % size
