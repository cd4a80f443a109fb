"""Where an epilogue reads and stores, counted by the batch, the rows and the columns of a tile.

A region's accesses are strides over atoms. A group holds the atoms that make up the batch, the rows
or the columns of a product; what walks a group by one stride is addressed by its index, what walks
its atoms apart (heads in the columns, a table that each sequence begins anew) by quotients of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import sympy

from agentkernel.compiler.axes import Atom, contiguous_strides, leaves
from agentkernel.compiler.emit import needs_int64
from agentkernel.compiler.fusion import Region, _together, index_atoms
from agentkernel.compiler.ir import ONE, Expr, Node, numel, same

Groups = tuple[tuple[Atom, ...], ...]
"""Atoms of the batch, of M and of N."""
Strides = Mapping[Atom, Expr]
NEIGHBOURS = 16
"""Elements of a row that lie together in any result: 32 bytes of 16-bit floats, what a store of a
GPU writes at least."""


def reads_once(value: Node, region: Region) -> bool:
    """True where a region reads `value` at one place for each of its own, and stores one result."""
    one = not region.reduces and len(region.stores) == 1
    return one and read_of(value, region) is value


def element_by_element(value: Node, groups: Sequence[Sequence[Atom]], region: Region) -> bool:
    """True where each result has an element for each of `value` and lies as it does, and all that
    is read goes along with its batch, rows and columns, whose atoms are `groups`."""
    alike = all(
        all(map(same, store.strides, contiguous_strides(store.node.shape)))
        and all(map(same, store.node.shape, value.shape))
        for store in region.stores
    )
    return alike and place_by_place(groups, region)


def place_by_place(groups: Sequence[Sequence[Atom]], region: Region) -> bool:
    """True where all that a region reads and stores goes along with batch, rows and columns."""
    return inside(groups, region) and all(walks(strides, groups) for strides in _walked(region))


def walks(strides: Strides, groups: Sequence[Sequence[Atom]]) -> bool:
    """True where the atoms of each group are walked together, and no others."""
    if set(strides) - {atom for group in groups for atom in group}:
        return False
    return all(
        _together(outer, inner, dict(strides))
        for group in groups
        for outer, inner in pairwise(group)
    )


def groups_of(value: Node, lead: int, region: Region) -> Groups:
    """Atoms of the batch, of M and of N."""
    dims = region.layout.dims[value]
    batch = tuple(atom for dim in dims[:lead] for atom in leaves(dim))
    rows = tuple(atom for dim in dims[lead:-1] for atom in leaves(dim))
    return batch, rows, leaves(dims[-1])


def read_of(product: Node, region: Region) -> Node | None:
    """What a region reads of a product, under whatever shape, where it reads it at one place for
    each of its own; None where it reads it otherwise."""
    found = [node for node, item in region.layout.loads.items() if item.buffer is product]
    return found[0] if len(found) == 1 and product not in region.layout.tables else None


def epilogue_groups(product: Node, region: Region) -> Groups | None:
    """Atoms of batch, M and N where the region makes one element of one result of each of the
    product, which may lie elsewhere there; None where it does something else."""
    read = read_of(product, region)
    if read is None or region.reduces or region.scatters or len(region.stores) != 1:
        return None
    lead, access = len(product.args[1].shape) - 2, region.layout.loads[read]
    sizes = (numel(product.shape[:lead]), numel(product.shape[lead:-1]), product.shape[-1])
    groups = in_order(access.resolved(), sizes) if access.offset == 0 else None
    fits = groups is not None and inside(groups, region)
    return groups if fits and stored_well(groups, region.store_accesses[0].resolved()) else None  # type: ignore[arg-type]


def in_order(strides: Strides, sizes: Sequence[Expr]) -> Groups | None:
    """The atoms of each of `sizes`, the last innermost, of what is walked as it lies in memory."""
    left = dict(strides)
    groups: list[tuple[Atom, ...]] = []
    step: Expr = ONE
    end: Expr = ONE
    for size in reversed(sizes):
        end = end * size
        group: list[Atom] = []
        while not same(step, end):
            atom = next((item for item, stride in left.items() if same(stride, step)), None)
            if atom is None:
                return None
            del left[atom]
            group.insert(0, atom)
            step = step * atom.size
        groups.insert(0, tuple(group))
    return None if left else tuple(groups)


def is_plain(groups: Groups, strides: Strides) -> bool:
    """True for what lies as the product does."""
    return in_order(strides, [numel([atom.size for atom in group]) for group in groups]) == groups


def stored_well(groups: Groups, strides: Strides) -> bool:
    """True where a result lies as the product does, or neighbours in a row lie together in it."""
    if is_plain(groups, strides):
        return True
    every = {atom for group in groups for atom in group}
    inner = groups[-1][-1] if groups[-1] else None
    near = inner is not None and inner.size.is_number and inner.size >= NEIGHBOURS
    return near and set(strides) == every and strides[inner] == 1  # type: ignore[index]


def terms(
    groups: Groups, names: Sequence[str], strides: Strides, text: Callable[[Expr], str]
) -> Iterator[str]:
    """What a place is the sum of, from the indices of batch, rows and columns, which go by `names`
    (`name[...]` where it is shaped); `text` writes a size."""
    for group, name in zip(groups, names, strict=True):
        runs = _runs(group, strides)
        inner: Expr = ONE
        found: list[str] = []
        for position, run in reversed(list(enumerate(runs))):
            size = numel([atom.size for atom in run])
            step = strides.get(run[-1], sympy.Integer(0))
            if step != 0:
                index = name
                if len(runs) > 1:
                    index = _part(name, inner, size if position else None, text)
                    index += ".to(tl.int64)" if needs_int64(size * step) else ""
                found.append(index if step == 1 else f"{index} * {text(step)}")
            inner = inner * size
        yield from reversed(found)


def _part(name: str, inner: Expr, size: Expr | None, text: Callable[[Expr], str]) -> str:
    """The index of some atoms of a group: `inner` places of others lie in each of theirs, and there
    are `size` of them before others outside."""
    stem, bracket, shape = name.partition("[")
    code = stem if inner == 1 else f"{stem} // {text(inner)}"
    code = code if size is None else f"{code} % {text(size)}"
    return f"({code}){bracket}{shape}"


def _runs(group: Sequence[Atom], strides: Strides) -> list[list[Atom]]:
    """The atoms of a group in runs that are walked together."""
    runs: list[list[Atom]] = []
    for atom in group:
        if runs and _together(runs[-1][-1], atom, dict(strides)):
            runs[-1].append(atom)
        else:
            runs.append([atom])
    return runs


def inside(groups: Sequence[Sequence[Atom]], region: Region) -> bool:
    """True where all that a region reads and stores goes by the atoms of `groups`."""
    if any(node.op == "within" for node in region.layout.dims):
        return False
    every = {atom for group in groups for atom in group}
    return all(set(strides) <= every for strides in _walked(region))


def _walked(region: Region) -> list[dict[Atom, Expr]]:
    accesses = [*region.layout.loads.values(), *region.store_accesses]
    return [*(access.resolved() for access in accesses), *index_atoms(region.layout)]
