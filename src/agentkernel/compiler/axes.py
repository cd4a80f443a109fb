"""Axes of the values of a fused region, and the strides with which buffers are addressed.

Dimensions are products of atoms. Values that are combined element by element have their atoms
unified; a reshape splits them where a new boundary falls inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import sympy

from agentkernel.compiler.ir import ONE, Expr, Node, Shape, numel, same

Hint = Callable[[Expr], int]


class IncompatibleAxes(Exception):
    """These nodes cannot share one iteration space; the partition then stores the value between."""


@dataclass(eq=False)
class Atom:
    """A factor of an iteration space. `parts` is set once it is tied to, or split into, others."""

    size: Expr
    parts: tuple[Atom, ...] | None = None

    def leaves(self) -> tuple[Atom, ...]:
        """The atoms that it stands for now, outermost first."""
        if self.parts is None:
            return (self,)
        return tuple(leaf for part in self.parts for leaf in part.leaves())


Dim = tuple[Atom, ...]
Dims = tuple[Dim, ...]


@dataclass(eq=False)
class Access:
    """How a buffer is addressed: offset + sum(stride * index) over atoms (absent: stride 0)."""

    buffer: Node
    strides: list[tuple[Atom, Expr]]
    offset: Expr

    def resolved(self) -> dict[Atom, Expr]:
        """Strides over leaf atoms; tied atoms add up."""
        result: dict[Atom, Expr] = {}
        for atom, stride in self.strides:
            step = stride
            for leaf in reversed(atom.leaves()):
                result[leaf] = result.get(leaf, sympy.Integer(0)) + step
                step = step * leaf.size
        return result


@dataclass(frozen=True, eq=False)
class Store:
    """A value that leaves the region: `node` (a view of a computed value), and its strides."""

    node: Node
    strides: Shape


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides: list[Expr] = []
    step: Expr = ONE
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def leaves(dim: Iterable[Atom]) -> Dim:
    """Current atoms of a dimension."""
    return tuple(leaf for atom in dim for leaf in atom.leaves())


def unify(left: Dim, right: Dim) -> None:
    """Make two dimensions of one size the same, splitting atoms by common factors. Eager requires
    that they agree, whether or not their sizes prove it."""
    one, two = list(leaves(left)), list(leaves(right))
    if len(one) == len(two) == 1 and one[0] is not two[0]:
        _unite(one[0], two[0])
        return
    single, several = (one, two) if len(one) == 1 else (two, one)
    sizes = (numel([atom.size for atom in item]) for item in (one, two))
    if len(single) == 1 and len(several) > 1 and not same(*sizes):
        single[0].parts = tuple(several)
        return
    while one and two:
        a, b = one.pop(), two.pop()
        if a is b:
            continue
        if same(a.size, b.size):
            b.parts = (a,)
        elif (rest := quotient(a.size, b.size)) is not None:
            outer = Atom(rest)
            a.parts = (outer, b)
            one.append(outer)
        elif (rest := quotient(b.size, a.size)) is not None:
            outer = Atom(rest)
            b.parts = (outer, a)
            two.append(outer)
        else:
            raise IncompatibleAxes(f"sizes {a.size} and {b.size} share no factor")
    if one or two:
        raise IncompatibleAxes("dimensions of different size")


def _unite(a: Atom, b: Atom) -> None:
    """Two whole dimensions that eager requires to agree, whether or not their sizes prove it."""
    keep, drop = (a, b) if sympy.count_ops(a.size) <= sympy.count_ops(b.size) else (b, a)
    drop.parts = (keep,)


def quotient(a: Expr, b: Expr) -> Expr | None:
    """a / b where that is a whole number for every size, else None."""
    ratio = sympy.cancel(a / b)
    if ratio.is_number:
        return ratio if ratio.is_integer and ratio > 1 else None
    numerator, denominator = sympy.fraction(ratio)
    return ratio if denominator == 1 and numerator != 1 else None


def regroup(dims: Dims, shape: Shape) -> Dims:
    """The atoms of `dims` under another shape, splitting where a new boundary falls inside one."""
    rest = [leaf for dim in dims for leaf in leaves(dim)]
    result: list[Dim] = []
    for size in reversed(shape):
        taken: list[Atom] = []
        while not same(numel([atom.size for atom in taken]), size):
            if not rest:
                raise IncompatibleAxes("reshape to another number of elements")
            _take(rest, taken, size)
        result.append(tuple(reversed(taken)))
    if rest:
        raise IncompatibleAxes("reshape leaves elements over")
    return tuple(reversed(result))


def regroups(old: Shape, new: Shape) -> bool:
    """Whether the sizes show how the dimensions of one shape fall into those of the other."""
    try:
        regroup(new_axes(old), new)
    except IncompatibleAxes:
        return False
    return True


def _take(rest: list[Atom], taken: list[Atom], size: Expr) -> None:
    atom = rest.pop()
    need = quotient(size, numel([item.size for item in taken])) if taken else size
    if need is None:
        raise IncompatibleAxes("a reshape that cuts across factors")
    if same(atom.size, need) or quotient(need, atom.size) is not None:
        taken.append(atom)
        return
    outer = quotient(atom.size, need)
    if outer is None:
        raise IncompatibleAxes(f"{atom.size} does not split at {need}")
    high, low = Atom(outer), Atom(need)
    atom.parts = (high, low)
    rest.append(high)
    taken.append(low)


@dataclass
class Layout:
    """Axes of every value of a region. `dims` holds the region's nodes and what they read."""

    members: frozenset[Node]
    dims: dict[Node, Dims] = field(default_factory=dict)
    loads: dict[Node, Access] = field(default_factory=dict)
    reduced: list[tuple[Node, Dim]] = field(default_factory=list)
    """Reductions and scans, and the axes along which they run."""
    tables: list[Node] = field(default_factory=list)
    """What gathers read, anywhere in it, and what scatters begin with."""

    def visit(self, node: Node) -> Dims:
        """Axes of `node`, found once."""
        if node not in self.dims:
            self.dims[node] = self._visit(node)
        return self.dims[node]

    def _visit(self, node: Node) -> Dims:
        if node.kind in ("constant", "size"):
            return ()
        if node.kind == "iota":
            return new_axes(node.shape)
        if node.kind == "field" and node.args[0] in self.members:
            return self.visit(node.args[0])
        if node in self.members:
            if node.kind == "scatter":
                return self._scatter(node)
            return self._pointwise(node) if node.kind == "pointwise" else self._reduce(node)
        if node.kind == "view" and _inside(node.root, self.members):
            return self._view(node)
        if node.kind == "view" and node.root.kind in ("constant", "size", "iota"):
            return self._view(node)
        return self._load(node)

    def _pointwise(self, node: Node) -> Dims:
        if node.op == "gather":
            table = node.args[-1]
            if _inside(table, self.members):
                raise IncompatibleAxes("a table that is not stored yet")
            self.tables.append(table)
        return self._together(node.operands, len(node.shape))

    def _scatter(self, node: Node) -> Dims:
        """Axes of what is added, not of the result: this has its places from an index."""
        for base in node.args[2:]:
            if _inside(base, self.members):
                raise IncompatibleAxes("a sum that begins with what is not stored yet")
            self.tables.append(base)
        return self._together(node.operands, len(node.args[1].shape))

    def _together(self, args: Sequence[Node], rank: int) -> Dims:
        """Axes of the broadcast of `args`."""
        if any(arg.root.kind == "scatter" and arg.root in self.members for arg in args):
            raise IncompatibleAxes("a sum that other programs still add to")
        result: list[Dim] = [()] * rank
        for arg in args:
            dims = self.visit(arg)
            for index, dim in enumerate(dims, rank - len(dims)):
                if arg.shape[index - rank + len(dims)] == 1:
                    continue
                if result[index]:
                    unify(result[index], dim)
                else:
                    result[index] = dim
        return tuple(result)

    def _reduce(self, node: Node) -> Dims:
        dims = self._together(node.args, len(node.shape))
        axes = node.attrs[0]
        if node.kind == "scan":
            assert isinstance(axes, int)
            self.reduced.append((node, dims[axes]))
            return dims
        assert isinstance(axes, tuple)
        self.reduced.append((node, tuple(atom for axis in axes for atom in dims[axis])))
        return tuple(() if index in axes else dim for index, dim in enumerate(dims))

    def _view(self, node: Node) -> Dims:
        dims = self.visit(node.args[0])
        if node.op == "permute":
            return tuple(dims[int(index)] for index in node.attrs)  # type: ignore[call-overload]
        if node.op == "expand":
            return tuple(
                new_axes((size,))[0] if old == 1 and size != 1 else dim
                for dim, old, size in zip(dims, node.args[0].shape, node.shape, strict=True)
            )
        if node.op == "reshape":
            return regroup(dims, node.shape)
        raise IncompatibleAxes(f"{node.op} of a value that is not stored")

    def _load(self, node: Node) -> Dims:
        """Read a buffer through its chain of views: strides follow the views exactly."""
        root = node.root
        dims = new_axes(root.shape)
        access = Access(root, _paired(dims, contiguous_strides(root.shape)), sympy.Integer(0))
        chain: list[Node] = []
        while node.kind == "view":
            chain.append(node)
            node = node.args[0]
        views = chain
        if (
            chain
            and chain[-1].op == "reshape"
            and (
                not regroups(root.shape, chain[-1].shape)
                or _merges_free(root.shape, chain[-1].shape)
            )
        ):
            # What is stored lies under the new shape as it lies under its own. Merged dimensions of
            # free sizes may meet others whose sizes alone do not show that they agree.
            dims = new_axes(chain[-1].shape)
            access.strides = _paired(dims, contiguous_strides(chain[-1].shape))
            views = chain[:-1]
        for view in reversed(views):
            dims = self._load_view(view, dims, access)
        self.loads[chain[0] if chain else root] = access
        return dims

    def _load_view(self, view: Node, dims: Dims, access: Access) -> Dims:
        if view.op == "permute":
            return tuple(dims[int(index)] for index in view.attrs)  # type: ignore[call-overload]
        if view.op == "expand":
            return tuple(
                new_axes((size,))[0] if old == 1 and size != 1 else dim
                for dim, old, size in zip(dims, view.args[0].shape, view.shape, strict=True)
            )
        if view.op == "reshape":
            return regroup(dims, view.shape)
        axis, start, step = view.attrs
        assert isinstance(axis, int)
        return self._load_slice(view, dims, access, axis, sympy.sympify(start), sympy.sympify(step))

    def _load_slice(
        self, view: Node, dims: Dims, access: Access, axis: int, start: Expr, step: Expr
    ) -> Dims:
        atoms = leaves(dims[axis])
        if len(atoms) > 1:
            raise IncompatibleAxes("a slice across merged dimensions")
        stride = access.resolved().get(atoms[0], sympy.Integer(0)) if atoms else sympy.Integer(0)
        kept = {atom: value for atom, value in access.resolved().items() if atom not in atoms}
        new = new_axes((view.shape[axis],))[0]
        access.strides = [*kept.items(), *((atom, stride * step) for atom in new)]
        access.offset = access.offset + start * stride
        return tuple(new if at == axis else dim for at, dim in enumerate(dims))


def _merges_free(old: Shape, new: Shape) -> bool:
    """Whether a reshape, of dimensions that fall into those of the other, merges free ones."""
    dims = regroup(new_axes(old), new)
    return any(
        len(dim) > 1 and sum(not atom.size.is_number for atom in dim) > 1 for dim in dims
    )  # fmt: skip


def _inside(root: Node, members: frozenset[Node]) -> bool:
    return root in members or (root.kind == "field" and root.args[0] in members)


def new_axes(shape: Shape) -> Dims:
    """New axes for a shape; a size of 1 has none."""
    return tuple(() if size == 1 else (Atom(size),) for size in shape)


def _paired(dims: Dims, strides: Sequence[Expr]) -> list[tuple[Atom, Expr]]:
    return [(dim[0], stride) for dim, stride in zip(dims, strides, strict=True) if dim]


def store_access(node: Node, dims: Dims, strides: Shape) -> Access:
    """How a stored value is addressed, given its axes and its buffer's strides. A scatter's places
    are computed: what it adds is walked as if it lay in memory itself."""
    if node.kind == "scatter":
        strides = contiguous_strides(node.args[1].shape)
    pairs: list[tuple[Atom, Expr]] = []
    for dim, stride in zip(dims, strides, strict=True):
        step = stride
        for atom in reversed(leaves(dim)):
            pairs.append((atom, step))
            step = step * atom.size
    return Access(node, pairs, sympy.Integer(0))
