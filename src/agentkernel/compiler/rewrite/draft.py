"""How is a captured graph edited so that each step can be taken back?"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node

from agentkernel.compiler.rewrite.reading import NARROW, dtype, shape, static
from agentkernel.tools.roofline.op_cost import SizeOf

aten = torch.ops.aten
Size = int | Node
"""A size in the making: known, or the node that computes it."""


@dataclass
class Draft:
    """The working copy. Rules add nodes with `call`; nothing is erased before a step is kept.

    `fixed` names the placeholders of parameters, buffers and constants; `infinities` asks for
    rewrites that keep NaN and infinities where eager has them.
    """

    graph: Graph
    fixed: frozenset[str]
    size_of: SizeOf
    infinities: bool = True
    added: list[Node] = field(default_factory=list)
    ranges: dict[Node, tuple[float, float]] = field(default_factory=dict)
    """What is known of the values of a node; filled by `intervals`."""
    _parametric: dict[Node, bool] = field(default_factory=dict)

    def call(self, op: Callable[..., object], *args: object, **kwargs: object) -> Node:
        """Add a call where the graph's insertion point is, with the fake value of its result."""
        node = self.graph.call_function(op, args, kwargs)  # type: ignore[arg-type]
        self.added.append(node)
        given = [_fake(item) for item in args]
        named = {key: _fake(item) for key, item in kwargs.items()}
        with self._mode(), torch.no_grad():
            node.meta["val"] = op(*given, **named)
        return node

    def _mode(self) -> FakeTensorMode:
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, FakeTensor):
                return value.fake_mode
        raise ValueError("The graph has no fake tensor. Expected one that capture() made.")

    def size(self, node: Node, dim: int) -> Size:
        """A size of a tensor: a number where it is static, else a node."""
        known = static(shape(node)[dim])
        return self.call(aten.sym_size.int, node, dim) if known is None else known

    def arithmetic(self, op: Callable[[int, int], int], left: Size, right: Size) -> Size:
        """`op` on sizes, computed now where both are known."""
        if isinstance(left, int) and isinstance(right, int):
            return op(left, right)
        return self.call(op, left, right)

    def product(self, sizes: list[Size]) -> Size:
        """The product of sizes."""
        result: Size = 1
        for item in sizes:
            result = item if result == 1 else self.arithmetic(operator.mul, result, item)
        return result

    def wide(self, node: Node) -> Node:
        """`node` in fp32 where it is narrower: folded weights keep their digits."""
        return self.cast(node, torch.float32) if dtype(node) in NARROW else node

    def cast(self, node: Node, wanted: torch.dtype) -> Node:
        """`node` as `wanted`."""
        if dtype(node) == wanted:
            return node
        return self.call(aten._to_copy.default, node, dtype=wanted)

    def squeeze(self, node: Node, dims: tuple[int, ...], keep: bool) -> Node:
        """Drop reduced dimensions of size 1, unless they are kept."""
        return node if keep or not dims else self.call(aten.squeeze.dims, node, list(dims))

    def parametric(self, node: object) -> bool:
        """True where a value follows from parameters, buffers and numbers alone.

        Such values are taken to be finite; user inputs may be anything.
        """
        if not isinstance(node, Node):
            return True
        if node not in self._parametric:
            if node.op == "placeholder":
                answer = node.name in self.fixed
            else:
                answer = node.op == "call_function" and not is_random(node)
                answer = answer and all(map(self.parametric, node.all_input_nodes))
            self._parametric[node] = answer
        return self._parametric[node]

    @contextmanager
    def before(self, node: Node) -> Iterator[None]:
        """Calls inside are inserted before `node`."""
        self.added.clear()
        with self.graph.inserting_before(node):
            yield

    def discard(self) -> None:
        """Erase what was added since the last `before`; nothing else may read it."""
        for node in reversed(self.added):
            self.graph.erase_node(node)
            self._parametric.pop(node, None)
            self.ranges.pop(node, None)
        self.added.clear()


def _fake(value: object) -> object:
    """An argument with each node as its fake value."""
    if isinstance(value, list | tuple):
        return [_fake(item) for item in value]
    return value.meta["val"] if isinstance(value, Node) else value


@dataclass
class Swap:
    """New nodes in the place of old ones, with the way back."""

    saved: list[tuple[Node, tuple[object, ...], dict[str, object]]]

    def undo(self) -> None:
        """Give every reader its old arguments."""
        for user, args, kwargs in reversed(self.saved):
            user.args, user.kwargs = args, kwargs  # type: ignore[assignment]


def swap(replaced: Mapping[Node, Node], added: list[Node]) -> Swap:
    """Let the readers of each old node, but not the `added` ones, read the new one."""
    result = Swap([])
    for old, new in replaced.items():
        for user in list(old.users):
            if user not in added:
                result.saved.append((user, user.args, dict(user.kwargs)))
                user.replace_input_with(old, new)
    return result


def is_random(node: Node) -> bool:
    """True for a call that draws random numbers: never equal to another, never dropped."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def erase_dead(graph: Graph) -> tuple[str, ...]:
    """Erase calls that nothing reads and that only compute; returns their names."""
    gone: list[str] = []
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and _only_computes(node):
            gone.append(node.name)
            graph.erase_node(node)
    return tuple(reversed(gone))


def _only_computes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    mutable = schema is not None and schema.is_mutable
    return "val" in node.meta and not mutable and not is_random(node)
