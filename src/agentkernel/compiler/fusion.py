"""Which nodes go into which kernel? Greedy merging wherever one iteration space fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentkernel.compiler.axes import Hint, IncompatibleAxes, Store, contiguous_strides
from agentkernel.compiler.ir import Node, Shape
from agentkernel.compiler.region import Region, analyse


@dataclass(frozen=True, eq=False)
class Output:
    """A value that forward returns, with eager's strides."""

    node: Node
    name: str
    strides: Shape


@dataclass(frozen=True, eq=False)
class LibraryStep:
    """A call left to torch, or an anchor such as a matrix product."""

    node: Node


Step = Region | LibraryStep


@dataclass(frozen=True, eq=False)
class Partition:
    """Kernels and library calls in an order that respects their data flow."""

    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]


def topological(outputs: Iterable[Node]) -> list[Node]:
    """Every node that the outputs need, producers first; what nothing needs is gone."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in order:
            return
        for arg in node.args:
            visit(arg)
        order[node] = None

    for node in outputs:
        visit(node)
    return list(order)


def computing_node(node: Node) -> Node:
    """The node that a kernel must compute to have `node`: below views and fields."""
    root = node.root
    return root.args[0] if root.kind == "field" else root


@dataclass
class _Merger:
    """The state of one partition: a group id for each placed node."""

    order: list[Node]
    outputs: Sequence[Output]
    hint: Hint
    group: dict[Node, int]
    cut: int = 0
    """Groups below it are not joined with the others."""
    indices: dict[Node, frozenset[Node]] = field(default_factory=dict)
    """Node -> what it is computed from that follows from its place alone, which each kernel that
    needs it works out itself."""

    def producers(self, node: Node) -> Iterator[Node]:
        for arg in node.args:
            source = computing_node(arg)
            if source in self.group:
                yield source

    def members(self, *groups: int) -> list[Node]:
        placed = [node for node in self.order if self.group.get(node) in groups]
        worked_out = frozenset[Node]().union(*(self.indices[node] for node in placed))
        if not worked_out:
            return placed
        every = worked_out.union(placed)
        return [node for node in self.order if node in every]

    def stores(self, inside: Sequence[Node]) -> list[Store]:
        """Values of `inside` that are read elsewhere or returned."""
        members = frozenset(inside)
        found: dict[tuple[Node, Shape], None] = {}
        for output in self.outputs:
            if computing_node(output.node) in members:
                found.setdefault((output.node, output.strides))
        returned = {node for node, _ in found}
        for node in self.order:
            if node in members or node.kind in ("view", "field"):
                continue
            for arg in node.args:
                root = arg.root
                placed = computing_node(arg) in members and computing_node(arg) in self.group
                if placed and root not in returned:
                    found.setdefault((root, contiguous_strides(root.shape)))
        return [Store(node, strides) for node, strides in found]

    def fits(self, nodes: list[Node]) -> Region | None:
        try:
            return analyse(nodes, self.stores(nodes), self.hint)
        except IncompatibleAxes:
            return None

    def merge_all(self) -> None:
        pairs = [
            (source, node)
            for node in self.order
            if node in self.group and node.computes
            for source in self.producers(node)
            if source.computes
        ]
        count, readers = 0, Counter(source for source, _ in dict.fromkeys(pairs))
        while count != (count := len(set(self.group.values()))):
            for source, node in pairs:
                self.merge(self.group[source], self.group[node])
            # What several kernels read joins them once they are one.
            pairs = [pair for pair in pairs if readers[pair[0]] > 1]
        self._siblings()

    def _siblings(self) -> None:
        """Join kernels that read the same buffer, so that it is read once."""
        readers: dict[Node, list[Node]] = {}
        for node in self.order:
            if node.computes:
                for arg in node.args:
                    if arg.root.kind in ("input", "library") and arg.root.shape:
                        readers.setdefault(arg.root, []).append(node)
        for nodes in readers.values():
            for left, right in pairwise(nodes):
                if len(left.args[0].root.shape) > 1:
                    self.merge(self.group[left], self.group[right])

    def merge(self, first: int, second: int) -> None:
        apart = (first < self.cut) != (second < self.cut)
        if apart or first == second or self.cyclic(first, second):
            return
        if self.fits(self.members(first, second)) is not None:
            for node, number in self.group.items():
                if number == first:
                    self.group[node] = second

    def cyclic(self, first: int, second: int) -> bool:
        """True where a path leads from one group to the other through a third."""
        edges: dict[int, set[int]] = {}
        for node, number in self.group.items():
            for source in self.producers(node):
                if self.group[source] != number:
                    edges.setdefault(self.group[source], set()).add(number)
        return _detour(edges, first, second) or _detour(edges, second, first)


def _detour(edges: dict[int, set[int]], start: int, goal: int) -> bool:
    waiting = [item for item in edges.get(start, ()) if item != goal]
    seen = set(waiting)
    while waiting:
        item = waiting.pop()
        if item == goal:
            return True
        for following in edges.get(item, ()):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def partition(outputs: Sequence[Output], hint: Hint, *, halved: bool = False) -> Partition:
    """Split the graph behind `outputs` into kernels and library calls; `halved`, no kernel holds
    operators of both halves of it. May raise Misfit."""
    order = topological(output.node for output in outputs)
    indices = _indices(order, outputs)
    worked_out = frozenset[Node]().union(*indices.values())
    placed = [
        node
        for node in order
        if (node.computes or node.kind == "library") and node not in worked_out
    ]
    groups = {node: index for index, node in enumerate(placed)}
    cut = len(placed) // 2 if halved else 0
    merger = _Merger(order, outputs, hint, groups, cut, indices)
    merger.merge_all()
    return Partition(tuple(_steps(merger)), tuple(outputs))


def _indices(order: Sequence[Node], outputs: Sequence[Output]) -> dict[Node, frozenset[Node]]:
    """For each node what it is computed from that depends on nothing stored, as an index or a mask
    does; not what has to be stored itself, since it is returned or a library reads it."""
    stored = {computing_node(output.node) for output in outputs}
    stored |= {computing_node(arg) for node in order if node.kind == "library" for arg in node.args}
    stored |= {computing_node(node.args[-1]) for node in order if node.op == "gather"}
    free: set[Node] = set()
    found: dict[Node, frozenset[Node]] = {}
    for node in order:
        below = frozenset[Node]().union(*(found[arg] for arg in node.args if arg in free))
        given = all(arg in free or arg.kind in ("constant", "size", "iota") for arg in node.args)
        if given and node.kind in ("pointwise", "view") and node not in stored:
            free.add(node)
            below |= {node} if node.kind == "pointwise" else frozenset()
        found[node] = below
    return found


def _steps(merger: _Merger) -> Iterator[Step]:
    """Groups in the order of their data flow."""
    done: set[int] = set()
    numbers = list(dict.fromkeys(merger.group.values()))
    while len(done) < len(numbers):
        ready = [
            number for number in numbers if number not in done and _ready(merger, number, done)
        ]
        for number in ready:
            nodes = merger.members(number)
            if nodes[0].kind == "library":
                yield LibraryStep(nodes[0])
            else:
                yield analyse(nodes, merger.stores(nodes), merger.hint)
            done.add(number)


def _ready(merger: _Merger, number: int, done: set[int]) -> bool:
    needed = {
        merger.group[source] for node in merger.members(number) for source in merger.producers(node)
    }
    return all(other in done or other == number for other in needed)
