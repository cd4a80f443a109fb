"""Which outputs are the same for every finite input?"""

from __future__ import annotations

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft, is_random
from agentkernel.compiler.rewrite.intervals import value_range
from agentkernel.compiler.rewrite.outputs import returned
from agentkernel.compiler.rewrite.reading import argument, base_op, floating, shape, static, tensor
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.op_cost import is_fill


def degenerate(captured: Captured, draft: Draft) -> tuple[int, ...]:
    """Positions of outputs that do not depend on the inputs' finite values, only on their sizes."""
    values = returned(captured.graph.graph)
    first = len(values) - len(captured.outputs)
    known: dict[Node, bool] = {}
    return tuple(
        index
        for index, value in enumerate(values[first:])
        if isinstance(value, Node) and _constant(draft, value, known)
    )


def _constant(draft: Draft, node: Node, known: dict[Node, bool]) -> bool:
    """Whether a node's value follows from parameters and sizes. Walks without recursing deeply."""
    for item in draft.graph.nodes:
        if item.op == "placeholder":
            known[item] = item.name in draft.fixed
        elif item.op == "call_function" and item not in known:
            known[item] = _one(draft, item, known)
    return known.get(node, False)


def _one(draft: Draft, node: Node, known: dict[Node, bool]) -> bool:
    if is_random(node):
        return False
    if isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat):
        return base_op(node) == "sym_size" or all(known.get(x, False) for x in node.all_input_nodes)
    if is_fill(node.target) or all(known.get(item, False) for item in node.all_input_nodes):
        return True
    if tensor(node) is None:
        return False
    low, high = value_range(draft, node)
    return low == high or _no_room(node)


def _no_room(node: Node) -> bool:
    """A softmax over one element is 1; a norm over one element has nothing left but its bias."""
    name = base_op(node)
    if name in ("softmax", "_softmax", "log_softmax", "_log_softmax") and floating(node.args[0]):
        dim = argument(node, "dim")
        return isinstance(dim, int) and static(shape(node.args[0])[dim]) == 1
    if name == "layer_norm":
        sizes = argument(node, "normalized_shape")
        inputs = [argument(node, item) for item in ("weight", "bias")]
        free = any(isinstance(item, Node) and item.op != "placeholder" for item in inputs)
        return isinstance(sizes, list | tuple) and all(static(x) == 1 for x in sizes) and not free
    return False
