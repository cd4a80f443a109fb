"""A packed linear layer as one for each range of columns that is read apart.

Queries, keys and values of one weight, cut by `split`, `chunk`, `unbind`, an index or a slice, are
products by ranges of its rows: nothing is copied, and each has what follows it as its own epilogue,
where the whole would be stored and read again. Every number is the same sum. Ranges that arithmetic
brings together, as the two halves of a gate, stay as they are: those are one kernel already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
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
    static_sizes,
    swap,
    tensor,
    tensor_argument,
)
from agentkernel.compiler.rewrite.engine import copied, with_graph
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.model import sizes_of

aten = torch.ops.aten
LEAST = 16
"""Columns of a range: a tensor core's."""
VIEWS = ("view.default", "reshape.default", "_unsafe_view.default")
PIECES = ("split", "chunk", "split_with_sizes", "unbind")
PRODUCTS = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum",
                      "scaled_dot_product_attention"))  # fmt: skip


@dataclass(frozen=True)
class _Cut:
    """What a node reads of a linear layer: places of dimension `axis` of its result, or of what a
    first view makes of it."""

    node: Node
    path: tuple[Node, ...]
    """The views before it."""
    axis: int
    dim: int
    """The dimension behind the views."""
    start: int
    length: int
    drops: bool
    """Whether the dimension is gone."""


class _Range(NamedTuple):
    first: int
    end: int
    cut: _Cut


def with_columns_apart(captured: Captured) -> Captured | None:
    """The graph with packed linear layers as several; None where there is no such layer."""
    graph = copied(captured)
    placeholders = frozenset(captured.parameters) | frozenset(captured.constants)
    draft = Draft(graph, placeholders, sizes_of(captured))
    found = False
    for node in list(graph.nodes):
        # What returned views are taken of stays whole.
        packed = op_of(node) == "linear.default" and node.name not in captured.computed
        ranges = _ranges(draft, node) if packed else []
        for item in ranges:
            with draft.before(item.cut.node):
                swap({item.cut.node: _apart(draft, node, item)}, draft.added)
        found |= bool(ranges)
    if not found:
        return None
    erase_dead(graph)
    # The new calls read and view as the old ones do: what was asked of sizes while their results
    # were made says nothing about which sizes they hold for.
    return replace(with_graph(captured, draft), guards=captured.guards)


def _ranges(draft: Draft, layer: Node) -> list[_Range]:
    """The ranges of columns in which alone a layer is read; none where it is not packed."""
    weight = tensor_argument(layer, "weight")
    if not draft.parametric(weight) or weight.op != "placeholder":
        return []
    found: list[_Range] = []
    for cut in _cuts(layer, (), tuple(range(rank(layer)))):
        columns = None if cut is None else _columns(layer, cut)
        if columns is None or columns.end - columns.first < LEAST:
            return []
        found.append(columns)
    found.sort(key=lambda item: item.first)
    if len(found) < 2 or any(one.end > two.first for one, two in pairwise(found)):
        return []
    reached = [_made_of(item.cut.node) for item in found]
    return [] if any(one & two for one, two in combinations(reached, 2)) else found


def _cuts(node: Node, path: tuple[Node, ...], order: tuple[int, ...]) -> Iterator[_Cut | None]:
    """How a layer's result is cut behind the views of `path`, which have its dimensions, or those
    of the first of them, in `order`; None for what is read otherwise."""
    for user in node.users:
        name = base_op(user)
        if op_of(user) in VIEWS and not path:
            yield from _cuts(user, (user,), tuple(range(rank(user))))
        elif name in ("permute", "transpose"):
            turned = _order(user, len(order))
            yield from _cuts(user, (*path, user), tuple(order[dim] for dim in turned))
        elif name == "slice" and same_shape(user, node):
            yield from _cuts(user, path, order)
        elif name in (*PIECES, "slice", "select"):
            yield from _pieces(user, path, order)
        else:
            yield None


def _order(node: Node, full: int) -> list[int]:
    """The dimensions of what `node` turns, in the order in which it has them."""
    if base_op(node) == "permute":
        dims = argument(node, "dims")
        assert isinstance(dims, list | tuple)
        return [int(dim) % full for dim in dims]
    order = list(range(full))
    one, two = (_number(node, name) % full for name in ("dim0", "dim1"))
    order[one], order[two] = two, one
    return order


def _number(node: Node, name: str) -> int:
    value = argument(node, name)
    assert isinstance(value, int)
    return value


def _pieces(node: Node, path: tuple[Node, ...], order: tuple[int, ...]) -> Iterator[_Cut | None]:
    """The parts that one call cuts off."""
    dim, name = _number(node, "dim") % len(order), base_op(node)
    before = static(shape(node.all_input_nodes[0])[dim])
    if before is None:
        yield None
    elif name == "select":
        yield _Cut(node, path, order[dim], dim, _number(node, "index") % before, 1, drops=True)
    elif name == "slice":
        start, length = argument(node, "start") or 0, static(shape(node)[dim])
        plain = argument(node, "step") == 1 and isinstance(start, int) and length is not None
        start = max(start + before, 0) if plain and start < 0 else start  # type: ignore[operator]
        yield _Cut(node, path, order[dim], dim, start, length, drops=False) if plain else None  # type: ignore[arg-type]
    else:
        values = node.meta["val"]
        drops = name == "unbind"
        lengths = [1 if drops else static(value.shape[dim]) for value in values]
        for user in node.users:
            index = user.args[1] if op_of(user) == "getitem" else None
            if not isinstance(index, int) or None in lengths:
                yield None
                continue
            start = sum(lengths[:index])  # type: ignore[arg-type]
            yield _Cut(user, path, order[dim], dim, start, lengths[index], drops)  # type: ignore[arg-type]


def _columns(layer: Node, cut: _Cut) -> _Range | None:
    """The columns of the layer that a cut reads; None where they do not follow each other."""
    base = cut.path[0] if cut.path and op_of(cut.path[0]) in VIEWS else layer
    inside = static_sizes(base, tuple(range(cut.axis, rank(base))))
    columns = static(shape(layer)[-1])
    if inside is None or columns is None:
        return None
    step = 1
    for size in inside[1:]:
        step *= size
    if step * inside[0] != columns:
        return None
    return _Range(cut.start * step, (cut.start + cut.length) * step, cut)


def _made_of(part: Node) -> frozenset[Node]:
    """What is computed of a part, up to the next products."""
    found: dict[Node, None] = {}
    waiting = list(part.users)
    while waiting:
        node = waiting.pop()
        if node not in found and tensor(node) is not None and base_op(node) not in PRODUCTS:
            found[node] = None
            waiting += node.users
    return frozenset(found)


def _apart(draft: Draft, layer: Node, found: _Range) -> Node:
    """The layer with the columns of a range alone, under the same views."""
    cut, bias = found.cut, optional_tensor_argument(layer, "bias")
    given = [tensor_argument(layer, "weight"), *([bias] if bias is not None else [])]
    rows = [draft.call(aten.slice.Tensor, item, 0, found.first, found.end) for item in given]
    made = draft.call(aten.linear.default, tensor_argument(layer, "input"), *rows)
    for view in cut.path:
        if op_of(view) in VIEWS:
            sizes = view.args[1]
            assert isinstance(sizes, Sequence)
            lengths = [cut.length if at == cut.axis else size for at, size in enumerate(sizes)]
            made = draft.call(aten.view.default, made, lengths)
        else:
            made = draft.call(view.target, made, *view.args[1:])  # type: ignore[arg-type]
    return draft.call(aten.squeeze.dim, made, cut.dim) if cut.drops else made
