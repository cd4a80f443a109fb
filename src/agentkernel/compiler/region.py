"""Can these nodes share one kernel, and if so over which rows and columns?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy

from agentkernel.compiler.axes import (
    Access,
    Atom,
    Hint,
    IncompatibleAxes,
    Layout,
    Store,
    leaves,
    store_access,
    unify,
)
from agentkernel.compiler.ir import Expr, Node, numel, same

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
    """One kernel's work: `rows` are parallel, `cols` reduced (or a pointwise's inner axis)."""

    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    layout: Layout
    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    store_accesses: tuple[Access, ...]

    @property
    def reduces(self) -> bool:
        """True where a reduction over `cols` happens."""
        return any(node.kind == "reduce" for node in self.nodes)

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
        _complete_reductions(layout, rows)
    _complete_stores(accesses, rows, cols)
    order = _order(every, layout, accesses, hint)
    walked = [access.resolved() for access in (*layout.loads.values(), *accesses)]
    indices = _index_atoms(layout)
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
    """Every reduction runs once for each row: to repeat it for others would cost a pass."""
    for node, _ in layout.reduced:
        kept = {leaf for dim in layout.dims[node] for leaf in leaves(dim)}
        if kept != rows:
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


def _stable(layout: Layout) -> list[Atom]:
    """Atoms in the order in which the walk met them, so that the same graph gives the same text."""
    seen: dict[Atom, None] = {}
    for dims in layout.dims.values():
        for dim in dims:
            for leaf in leaves(dim):
                seen.setdefault(leaf)
    return list(seen)


def _index_atoms(layout: Layout) -> list[dict[Atom, Expr]]:
    """Index values (iota) as if they were accesses, so that their axis stays separate."""
    result: list[dict[Atom, Expr]] = []
    for node, dims in layout.dims.items():
        if node.kind == "iota":
            axis = node.attrs[0]
            assert isinstance(axis, int)
            strides: dict[Atom, Expr] = {}
            step: Expr = sympy.Integer(1)
            for leaf in reversed(leaves(dims[axis])):
                strides[leaf] = step
                step = step * leaf.size
            result.append(strides)
    return result


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
