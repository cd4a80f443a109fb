"""Fused regions: which nodes share one kernel, over which rows and columns.

A graph is partitioned by greedy merging wherever one iteration space fits; what stays with the
library is a step of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import sympy

from agentkernel.compiler.axes import (
    Access,
    Atom,
    Hint,
    IncompatibleAxes,
    Layout,
    Store,
    contiguous_strides,
    leaves,
    store_access,
    unify,
)
from agentkernel.compiler.ir import Expr, Node, Shape, numel, roots_of, same

ANCHORS = ("product", "attention")
"""Library nodes that a kernel of ours may serve as well."""
FLAT_BELOW = 64
"""An innermost axis shorter than this is folded into one flat index by pointwise kernels."""


@dataclass(frozen=True, eq=False)
class Axis:
    """Adjacent atoms that every access walks together; `atoms` from the outermost inwards."""

    atoms: tuple[Atom, ...]

    @property
    def size(self) -> Expr:
        """Number of positions."""
        return numel([atom.size for atom in self.atoms])

    def stride(self, access: dict[Atom, Expr]) -> Expr:
        """Elements from one position to the next."""
        return access.get(self.atoms[-1], sympy.Integer(0))


@dataclass(frozen=True, eq=False)
class Region:
    """One kernel's work: `rows` are parallel, `cols` are what reductions and scans run along (or a
    pointwise's inner axis)."""

    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    layout: Layout
    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    store_accesses: tuple[Access, ...]

    @property
    def reduces(self) -> bool:
        """True where reductions or scans run along `cols`."""
        return bool(self.layout.reduced)

    @property
    def scans(self) -> tuple[Node, ...]:
        """The scans along `cols`, producers first."""
        return tuple(node for node in self.nodes if node.kind == "scan")

    @property
    def scatters(self) -> bool:
        """True where it adds to places that an index gives."""
        return any(store.node.kind == "scatter" for store in self.stores)

    @property
    def backwards(self) -> bool:
        """True where its scans begin at the last column."""
        return any(node.attrs[1] is True for node in self.scans)

    @property
    def row_count(self) -> Expr:
        """Number of rows."""
        return numel([axis.size for axis in self.rows])

    @property
    def col_count(self) -> Expr:
        """Number of columns of each row."""
        return numel([axis.size for axis in self.cols])

    @property
    def reads(self) -> tuple[Node, ...]:
        """The buffers that it reads, each once."""
        walked = [access.buffer for access in self.layout.loads.values()]
        return tuple(dict.fromkeys([*walked, *self.layout.tables]))

    @property
    def flattened(self) -> Region:
        """The same work over one flat index."""
        return replace(self, rows=(), cols=(*self.rows, *self.cols))

    def atoms_of(self, node: Node) -> frozenset[Atom]:
        """The atoms that a value varies over."""
        return frozenset(atom for dim in self.layout.dims[node] for atom in leaves(dim))

    def spans(self, node: Node) -> tuple[bool, bool]:
        """Whether a value varies over rows, and over columns."""
        atoms = self.atoms_of(node)
        rows = any(atom in atoms for axis in self.rows for atom in axis.atoms)
        cols = any(atom in atoms for axis in self.cols for atom in axis.atoms)
        return rows, cols


def analyse(members: Sequence[Node], stores: Sequence[Store], hint: Hint) -> Region:
    """Find the iteration space of `members`. Raises Misfit where they cannot share one."""
    layout = Layout(frozenset(members))
    for node in members:
        layout.visit(node)
    for store in stores:
        layout.visit(store.node)
    _tie_reductions(layout)
    accesses = [store_access(item.node, layout.visit(item.node), item.strides) for item in stores]
    _no_diagonals(layout)
    every = _all_atoms(layout)
    cols = _reduced_atoms(layout)
    rows = every - cols
    if layout.reduced:
        if any(item.node.kind == "scatter" for item in stores):
            raise IncompatibleAxes("a scatter of what a reduction makes")
        _complete_reductions(layout, rows)
    _complete_stores(accesses, rows, cols)
    order = _in_scan_order(_order(every, layout, accesses, hint), layout)
    walked = [access.resolved() for access in (*layout.loads.values(), *accesses)]
    indices = index_atoms(layout)
    row_axes = _collapse([atom for atom in order if atom in rows], walked, indices)
    col_axes = _collapse([atom for atom in order if atom in cols], walked, indices)
    if not layout.reduced:
        row_axes, col_axes = _split_pointwise(row_axes, hint)
    return Region(tuple(members), tuple(stores), layout, row_axes, col_axes, tuple(accesses))


def _tie_reductions(layout: Layout) -> None:
    """Let reductions that share no axis run over one: independent indices of one length."""
    if not layout.reduced:
        return
    first = layout.reduced[0][1]
    for _, dim in layout.reduced[1:]:
        if not set(leaves(first)) & set(leaves(dim)):
            lengths = (numel([atom.size for atom in leaves(item)]) for item in (first, dim))
            if not same(*lengths):
                raise IncompatibleAxes("reductions of different length")
            unify(first, dim)


def _no_diagonals(layout: Layout) -> None:
    for dims in layout.dims.values():
        atoms = [leaf for dim in dims for leaf in leaves(dim)]
        if len(set(atoms)) != len(atoms):
            raise IncompatibleAxes("a value meets its own transpose")


def _all_atoms(layout: Layout) -> frozenset[Atom]:
    found = {leaf for dims in layout.dims.values() for dim in dims for leaf in leaves(dim)}
    return frozenset(found | {leaf for _, dim in layout.reduced for leaf in leaves(dim)})


def _reduced_atoms(layout: Layout) -> frozenset[Atom]:
    sets = [frozenset(leaves(dim)) for _, dim in layout.reduced]
    if not sets:
        return frozenset()
    if any(item != sets[0] for item in sets):
        raise IncompatibleAxes("reductions over different axes")
    return sets[0]


def _complete_reductions(layout: Layout, rows: frozenset[Atom]) -> None:
    """Every reduction runs once for each row, and every scan: to repeat it for others would cost a
    pass."""
    for node, along in layout.reduced:
        kept = {leaf for dim in layout.dims[node] for leaf in leaves(dim)}
        if kept != (rows | set(leaves(along)) if node.kind == "scan" else rows):
            raise IncompatibleAxes("a reduction that some rows share")


def _complete_stores(
    accesses: Sequence[Access], rows: frozenset[Atom], cols: frozenset[Atom]
) -> None:
    for access in accesses:
        atoms = frozenset(access.resolved())
        if atoms not in (rows | cols, rows):
            raise IncompatibleAxes("a stored value that several programs would write")


def _order(
    every: frozenset[Atom], layout: Layout, accesses: Sequence[Access], hint: Hint
) -> list[Atom]:
    """Atoms from the outermost to the innermost, as the widest store (else load) walks memory."""
    walked = [access.resolved() for access in (*accesses, *layout.loads.values())]
    reference = max(walked, key=len, default={})
    for candidate in walked:
        if len(candidate) == len(every):
            reference = candidate
            break
    position = {atom: index for index, atom in enumerate(_stable(layout))}
    return sorted(
        every, key=lambda atom: (-hint(reference.get(atom, sympy.oo)), position.get(atom, 0))
        if atom in reference else (-(1 << 62), position.get(atom, 0))
    )  # fmt: skip


def _in_scan_order(order: Sequence[Atom], layout: Layout) -> list[Atom]:
    """`order` with the atoms of the columns as scans walk them. Raises IncompatibleAxes where these
    walk them in several ways."""
    scans = [(node, leaves(dim)) for node, dim in layout.reduced if node.kind == "scan"]
    if not scans:
        return list(order)
    walked = scans[0][1]
    if any(dim != walked for _, dim in scans):
        raise IncompatibleAxes("scans in different order")
    if any(node.attrs[1] is True for node, _ in scans) and any(
        node.kind == "reduce" or node.attrs[1] is False for node, _ in layout.reduced
    ):
        raise IncompatibleAxes("a scan from the last column on beside one in order")
    return [atom for atom in order if atom not in walked] + list(walked)


def _stable(layout: Layout) -> list[Atom]:
    """Atoms in the order in which the walk met them, so that the same graph gives the same text."""
    seen: dict[Atom, None] = {}
    for dims in layout.dims.values():
        for dim in dims:
            for leaf in leaves(dim):
                seen.setdefault(leaf)
    return list(seen)


def index_atoms(layout: Layout) -> list[dict[Atom, Expr]]:
    """Index values (iota) as if they were accesses, so that their axis stays separate."""
    return [index_strides(node, layout) for node in layout.dims if node.kind == "iota"]


def index_strides(index: Node, layout: Layout) -> dict[Atom, Expr]:
    """How an index value counts along its atoms."""
    axis = index.attrs[0]
    assert isinstance(axis, int)
    strides: dict[Atom, Expr] = {}
    step: Expr = sympy.Integer(1)
    for leaf in reversed(leaves(layout.dims[index][axis])):
        strides[leaf] = step
        step = step * leaf.size
    return strides


def _collapse(
    atoms: Sequence[Atom], walked: Sequence[dict[Atom, Expr]], indices: Sequence[dict[Atom, Expr]]
) -> tuple[Axis, ...]:
    axes: list[list[Atom]] = []
    for atom in atoms:
        if axes and all(_together(axes[-1][-1], atom, item) for item in (*walked, *indices)):
            axes[-1].append(atom)
        else:
            axes.append([atom])
    return tuple(Axis(tuple(item)) for item in axes)


def _together(outer: Atom, inner: Atom, strides: dict[Atom, Expr]) -> bool:
    zero = sympy.Integer(0)
    left, right = strides.get(outer, zero), strides.get(inner, zero)
    return bool(sympy.expand(left - right * inner.size) == 0)


def _split_pointwise(
    axes: tuple[Axis, ...], hint: Hint
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Rows and columns of a kernel without reductions: one flat axis, or the innermost apart."""
    if len(axes) <= 1 or hint(axes[-1].size) < FLAT_BELOW:
        return (), axes
    return axes[:-1], axes[-1:]


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
    parts: tuple[Node, ...] = ()
    """Its results where it has several, the `field` nodes of `node`."""
    read_by_kernels: frozenset[Node] = frozenset()
    """The results that generated kernels read, relying on how they lie."""

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of(self.node.args)


Step = Region | LibraryStep


@dataclass(frozen=True, eq=False)
class Partition:
    """Kernels and library calls in an order that respects their data flow."""

    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]

    def only_region(self, node: Node) -> Region | None:
        """The region that alone reads a stored value; None where others do, or it is returned."""
        readers = [step for step in self.steps if node in step.reads]
        returned = any(output.node is node for output in self.outputs)
        alone = len(readers) == 1 and not returned
        return readers[0] if alone and isinstance(readers[0], Region) else None

    def with_calls(self, op: str, made: Callable[[LibraryStep], object]) -> Partition:
        """The same with steps of another kind, as `made` gives them, in the place of calls of
        `op`."""
        steps = (
            made(step) if isinstance(step, LibraryStep) and step.node.op == op else step
            for step in self.steps
        )
        return Partition(tuple(steps), self.outputs)  # type: ignore[arg-type]


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
    does; not what has to be stored itself, since it is returned, cut or read by a library."""
    stored = {computing_node(output.node) for output in outputs}
    stored |= {computing_node(arg) for node in order if node.kind == "library" for arg in node.args}
    stored |= {computing_node(node.args[-1]) for node in order if node.op == "gather"}
    stored |= {
        computing_node(base) for node in order if node.kind == "scatter" for base in node.args[2:]
    }
    stored |= {computing_node(node) for node in order if node.op == "slice"}
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
                yield _library_step(merger, nodes[0])
            else:
                yield analyse(nodes, merger.stores(nodes), merger.hint)
            done.add(number)


def _library_step(merger: _Merger, node: Node) -> LibraryStep:
    parts = [item for item in merger.order if item.kind == "field" and item.args[0] is node]
    parts.sort(key=lambda part: int(part.attrs[0]))  # type: ignore[call-overload]
    read = {
        arg.root
        for item in merger.order
        for arg in item.args
        if computing_node(arg) is node
        and (item.computes or (item.op in ANCHORS and not _rearranged(arg)))
    }
    return LibraryStep(node, tuple(parts), frozenset(read))


def _rearranged(operand: Node) -> bool:
    """True for a view of which an anchor takes a contiguous copy, whatever it is a view of."""
    return operand.kind == "view" and not (
        operand.op == "permute" and operand.args[0] is operand.root
    )


def _ready(merger: _Merger, number: int, done: set[int]) -> bool:
    needed = {
        merger.group[source] for node in merger.members(number) for source in merger.producers(node)
    }
    return all(other in done or other == number for other in needed)
