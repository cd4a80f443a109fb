"""How does an edited graph become a captured one again, each output in memory of its own?"""

from __future__ import annotations

from dataclasses import replace

import sympy
import torch
from torch.fx import Graph, GraphModule, Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import tensor
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.op_cost import ALLOCATIONS, is_free, op_name


def with_graph(captured: Captured, draft: Draft) -> Captured:
    """`captured` with the graph of `draft`, its outputs' names and its assumptions on sizes."""
    graph = draft.graph
    output = output_of(graph)
    new, old = returned(graph), returned(captured.graph.graph)
    fresh = [
        _owned(draft, output, index, new, old) if isinstance(item, Node) else item
        for index, item in enumerate(new)
    ]
    output.args = (tuple(fresh),)  # type: ignore[arg-type]
    first = len(fresh) - len(captured.outputs)
    names = tuple(
        item.name if isinstance(item, Node) and name is not None else None
        for item, name in zip(fresh[first:], captured.outputs, strict=True)
    )
    graph.lint()
    module = GraphModule(captured.graph, graph)
    return replace(captured, graph=module, outputs=names, guards=_guards(graph, captured.guards))


def output_of(graph: Graph) -> Node:
    """The node that returns."""
    return graph.output_node()


def returned(graph: Graph) -> list[object]:
    """What a graph returns: new values of buffers and inputs first, then forward's outputs."""
    values = output_of(graph).args[0]
    assert isinstance(values, tuple | list)
    return list(values)


def _owned(draft: Draft, output: Node, index: int, new: list[object], old: list[object]) -> Node:
    """A copy where an output would come to share memory with an input or an earlier output."""
    value = new[index]
    assert isinstance(value, Node)
    root, before = _root(value), _root(old[index])
    given = root is not None and root.op == "placeholder"
    aliases = given and (before is None or before.op != "placeholder")
    for other in range(index):
        shares = _root(new[other]) is root and _root(old[other]) is not before
        aliases |= shares and not given
    if not aliases:
        return value
    with draft.before(output):
        return draft.call(torch.ops.aten.clone.default, value)


def _root(node: object) -> Node | None:
    """The node below all views; None for what is no node."""
    if not isinstance(node, Node):
        return None
    while node.op == "call_function" and is_free(node.target) and node.all_input_nodes:
        if op_name(node.target) in ALLOCATIONS or tensor(node) is None:
            break
        node = node.all_input_nodes[0]
    return node


def _guards(graph: Graph, known: tuple[sympy.Basic, ...]) -> tuple[sympy.Basic, ...]:
    """What is taken for granted about sizes, that of the new nodes included."""
    for node in graph.nodes:
        value = tensor(node)
        for size in value.shape if value is not None else ():
            if isinstance(size, torch.SymInt):
                guards = (guard.expr for guard in size.node.shape_env.guards)
                return tuple(dict.fromkeys((*known, *guards)))
    return known
