"""A captured graph at its declared sizes, without symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from agentkernel.tools.problem.capture import Captured

CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range")
"""Operators that only check what tracing took for granted."""


class UnknownSize(Exception):
    """A size that depends on data, so that no declared sizes give it; the text says so."""


@dataclass(frozen=True)
class _Sizes:
    """Symbol -> declared size."""

    values: Mapping[str, int]

    def __call__(self, size: object) -> object:
        """`size` as a number; what is none comes back as it is."""
        if not isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
            return size
        expr: sympy.Basic = size.node.expr
        unknown = sorted(str(item) for item in expr.free_symbols if str(item) not in self.values)
        if unknown:
            raise UnknownSize("a size depends on data: how many elements there are, no graph says")
        known = {item: self.values[str(item)] for item in expr.free_symbols}
        value = expr.subs(known)
        if isinstance(size, torch.SymBool):
            return bool(value)
        return float(value) if isinstance(size, torch.SymFloat) else int(value)


def specialise(captured: Captured) -> Captured:
    """`captured` for the sizes that it was captured with: the same nodes under the same names, each
    size a number, tensors in `meta["val"]` without storage. A judge of it varies no size."""
    sizes = _Sizes({item.symbol: item.size for item in captured.free_dims})
    graph, made = Graph(), {}
    for node in captured.graph.graph.nodes:
        if _is_check(node):
            continue
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.SymInt | torch.SymFloat | int):
            made[node] = sizes(value)
            continue
        made[node] = _copy(graph, node, made, sizes)
    module = GraphModule(captured.graph, graph)
    numbers = {node.name: value for node, value in made.items() if not isinstance(value, Node)}
    plain = {at: numbers[name] for at, name in enumerate(captured.outputs) if name in numbers}
    return replace(
        captured,
        graph=module,
        outputs=tuple(None if name in numbers else name for name in captured.outputs),
        plain_outputs={**captured.plain_outputs, **plain},
        free_dims=(),
        guards=(),
    )


def _is_check(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and name.split(".")[0] in CHECKS


def _copy(graph: Graph, node: Node, made: Mapping[Node, object], sizes: _Sizes) -> Node:
    here: Callable[[object], object] = lambda item: (  # noqa: E731
        made[item] if isinstance(item, Node) else sizes(item)
    )
    args, kwargs = tree_map(here, (node.args, dict(node.kwargs)))
    copied = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
    # A new node is never named as a builtin is, such as `input`.
    copied.name = node.name
    if "val" in node.meta:
        copied.meta["val"] = tree_map(lambda item: _plain(item, sizes), node.meta["val"])
    return copied


def _plain(value: object, sizes: _Sizes) -> object:
    """A tensor of the same form on meta; a size as a number."""
    if not isinstance(value, torch.Tensor):
        return sizes(value)
    shape = [int(str(sizes(size))) for size in value.shape]
    strides = [int(str(sizes(stride))) for stride in value.stride()]
    return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")
