"""Pooling windows behind a convolution, reduced in its tile: what they read is never stored.

The places of a tile are those of whole windows, a window's one behind the other; the sum, maximum
or minimum of each is taken in registers, and what follows is computed of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agentkernel.compiler.axes import contiguous_strides, leaves
from agentkernel.compiler.convolutions.reducing import OF_ONE_NUMBER, atoms_in, reduces_to_one
from agentkernel.compiler.convolutions.schedules import by_sums
from agentkernel.compiler.convolutions.spec import Geometry, Pooling
from agentkernel.compiler.emit import BodyLines
from agentkernel.compiler.expressions import ATOM, Text
from agentkernel.compiler.fusion import Region, index_atoms, topological
from agentkernel.compiler.ir import Expr, Node, same
from agentkernel.compiler.kernel import function_text, wrapped_call
from agentkernel.compiler.monoid import MonoidText
from agentkernel.compiler.products.places import Groups, read_of, walks
from agentkernel.compiler.products.step import EpilogueText, Scope, epilogue_emitter

MOST_TAPS = 16


@dataclass(frozen=True, eq=False)
class Window:
    """A region that reduces windows of a stored value which touch and do not overlap."""

    region: Region
    read: Node
    """The value as [batch, channels, windows, places of one, ...], one such pair a dimension."""
    reduction: Node

    @property
    def taps(self) -> tuple[int, ...]:
        """Places of a window along each dimension."""
        return tuple(int(size) for size in self.read.shape[3::2])

    @property
    def counts(self) -> tuple[Expr, ...]:
        """Windows along each dimension."""
        return self.read.shape[2::2]

    @property
    def groups(self) -> Groups:
        """Atoms of the batch, of the channels and of the windows."""
        dims = self.region.layout.dims[self.read]
        return leaves(dims[0]), leaves(dims[1]), tuple(x for dim in dims[2::2] for x in leaves(dim))


def window_of(value: Node, geometry: Geometry, region: Region) -> Window | None:
    """How `region` reduces windows of a convolution's result `value`, where a tile can do that."""
    read = read_of(value, region)
    if read is None or geometry.transposed or by_sums(geometry) or not reduces_to_one(region):
        return None
    reductions = [node for node in region.nodes if node.kind == "reduce"]
    if len(reductions) != 1 or reductions[0].op not in OF_ONE_NUMBER:
        return None
    if not _in_windows(value, read, region):
        return None
    found = Window(region, read, reductions[0])
    taps = math.prod(found.taps)
    fits = 2 <= taps <= MOST_TAPS and taps & (taps - 1) == 0
    return found if fits and _place_by_place(found) else None


def _in_windows(value: Node, read: Node, region: Region) -> bool:
    """True where `read` has the windows of all channels of `value` apart, from its first place
    on."""
    rank = len(value.shape) - 2
    access, dims = region.layout.loads[read], region.layout.dims[read]
    if len(dims) != 2 + 2 * rank or access.offset != 0 or any(len(leaves(d)) > 1 for d in dims[2:]):
        return False
    if any(not size.is_number for size in read.shape[3::2]):
        return False
    if not all(map(same, read.shape[:2], value.shape[:2])):
        return False
    strides, steps = access.resolved(), contiguous_strides(value.shape)
    wanted: list[Expr] = [steps[0], steps[1]]
    for dim in range(rank):
        wanted += [steps[2 + dim] * read.shape[3 + 2 * dim], steps[2 + dim]]
    inner = [leaves(dim)[-1:] for dim in dims]
    return all(
        same(size, 1) or (atom and same(strides.get(atom[0], 0), step))
        for size, atom, step in zip(read.shape, inner, wanted, strict=True)
    )


def _place_by_place(window: Window) -> bool:
    """True where the result has a place for each window, and all that is read beside the windows
    goes along with channels before they are reduced, and with windows after that."""
    region, groups = window.region, window.groups
    if any(node.op in ("within", "gather") for node in region.layout.dims):
        return False
    whole = atoms_in(region.rows) == [atom for group in groups for atom in group]
    early = set(topological(window.reduction.args))
    loads = {node: item for node, item in region.layout.loads.items() if node is not window.read}
    channels = all(
        set(item.resolved()) <= set(groups[1]) for node, item in loads.items() if node in early
    )
    walked = [item.resolved() for item in (*loads.values(), *region.store_accesses)]
    walked += index_atoms(region.layout)
    together = all(walks(strides, groups) for strides in walked)
    return whole and channels and together and not any(n.kind == "iota" for n in early)


def pooling_of(window: Window, scope: Scope) -> Pooling:
    """The window in the words of a kernel."""
    return Pooling(window.taps, tuple(scope.symbols.wrapper(size) for size in window.counts))


def pooling_end(
    window: Window, names: tuple[str, str], scope: Scope, used: Mapping[str, str]
) -> tuple[EpilogueText, str]:  # fmt: skip
    """The line that calls the function of the windows, with what that reads, and its text; `names`:
    of the convolution's kernel and of the result; `used`: parameters that the kernel has."""
    region, taps = window.region, math.prod(window.taps)
    name = scope.names.unique(f"{names[0].removesuffix('_kernel')}_of_windows")
    emitter = epilogue_emitter(region, {window.read: "acc"}, window.groups, scope)
    emitter.batch = "batch[None, :]"
    emitter.names.taken |= {"place", "batches", "pooled"}
    emitter.own_pointers |= frozenset(("x_ptr", "weight_ptr", "bias_ptr", *used))
    lines: list[str] = []
    body = BodyLines(lines, lines)
    before = emitter.value(window.reduction.args[0], body).code
    tile = f"tl.reshape({before}, (BLOCK_M, BLOCK_N, {taps}))"
    lines += [
        f"pooled = {MonoidText(emitter, window.reduction).folded([tile], axis=2)[0]}",
        "col_mask = place < batches * N",
        "batch = (place // N).to(tl.int64)",
        "cols = (place % N).to(tl.int32)",
        "tile_mask = row_mask[:, None] & col_mask[None, :]",
        "tile = (batch[None, :] * M + rows[:, None]) * N + cols[None, :]",
    ]
    emitter.row_values[window.reduction] = Text("pooled")
    value = emitter.value(region.stores[0].node, body)
    kind = "out_ptr.dtype.element_ty"
    lines.append(f"tl.store(out_ptr + tile, {value.within(ATOM - 1)}.to({kind}), mask=tile_mask)")
    extras = [*emitter.pointers.items()]
    extras += [(key, scope.symbols.wrapper(size)) for key, size in emitter.sizes.extra.items()]
    passed = [key for key, _ in extras]
    parameters = ["acc", "place", "rows", "row_mask", "batches", "out_ptr", *passed,
                  "N: tl.constexpr", "M: tl.constexpr", "BLOCK_M: tl.constexpr",
                  "BLOCK_N: tl.constexpr"]  # fmt: skip
    windows = f"BLOCK_N // {taps}"
    area = " * ".join(f"POOL_{dim}" for dim in range(len(window.taps)))
    arguments = [
        "acc", f"tile_n.to(INDEX) * ({windows}) + tl.arange(0, {windows})", "rows", "row_mask",
        "tl.cast(batches, INDEX)", "out_ptr", *passed, area, "M", "BLOCK_M", windows,
    ]  # fmt: skip
    doc = [f'"""{_title(window)}"""']
    text = function_text(name, parameters, doc, lines)
    call = wrapped_call(name, arguments).splitlines()
    return EpilogueText(tuple(call), tuple(extras), frozenset(emitter.helpers)), text


def _title(window: Window) -> str:
    """The function's docstring."""
    kind = {"sum": "Sums", "max": "Maxima", "min": "Minima"}[window.reduction.op]
    return f"{kind} of windows of {' x '.join(map(str, window.taps))} places, and what follows."
