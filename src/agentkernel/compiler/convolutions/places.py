"""Reductions over all places of a convolution's result, which is never stored.

The convolution leaves the sum or extremum of each tile and channel; a second kernel takes those of
a picture together, in the order of the tiles, and computes what follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from agentkernel.compiler.convolutions.reducing import (
    OF_ONE_NUMBER,
    TileEmitter,
    atoms_in,
    reduces_to_one,
)
from agentkernel.compiler.convolutions.schedules import by_sums
from agentkernel.compiler.convolutions.spec import Geometry, factor
from agentkernel.compiler.emit import BodyLines, Schedule
from agentkernel.compiler.expressions import Text
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import Node, numel
from agentkernel.compiler.kernel import (
    KernelCode,
    function_text,
    kernel_names,
    size_parameters,
    wrapped_call,
)
from agentkernel.compiler.monoid import MonoidText
from agentkernel.compiler.products.places import Groups, place_by_place, read_of
from agentkernel.compiler.products.step import (
    FLOATS,
    EpilogueText,
    Scope,
    epilogue_emitter,
    finished,
)
from agentkernel.compiler.rows_reductions import kernel_docstring, store_lines

LEAST_PLACES = 512
"""Of smaller pictures a tile of one would be part empty."""
ROWS = 4
"""Rows of the second kernel's programs."""
MOST_PARTS = 512
"""Parts of a row that such a program reads at once: a large picture has many thousands."""


class PlacesEnd(NamedTuple):
    """Lines behind the sums in their tile, the second kernel with its launch, and the workspace."""

    text: EpilogueText
    finish: KernelCode


def reduces_places(
    node: Node, geometry: Geometry, groups: Groups, region: Region, places: int
) -> bool:
    """True where the region's rows are pictures and channels of the result `node`, whose `places`
    are its columns, it reduces these once and stores one result."""
    if places < LEAST_PLACES or not reduces_to_one(region) or read_of(node, region) is not node:
        return False
    if geometry.transposed or geometry.groups > 1 or by_sums(geometry):
        return False
    reductions = [item for item in region.nodes if item.kind == "reduce"]
    # Parts are fp32, which holds no large integer.
    one = len(reductions) == 1 and reductions[0].op in OF_ONE_NUMBER
    if not one or reductions[0].dtype not in FLOATS:
        return False
    batch, channels, every = groups
    return (
        atoms_in(region.rows) == [*batch, *channels]
        and atoms_in(region.cols) == [*every]
        and not region.spans(region.stores[0].node)[1]
        and place_by_place(groups, region)
    )


def places_end(
    node: Node, region: Region, groups: Groups, schedule: Mapping[str, int],
    names: tuple[str, str], scope: Scope, reserved: frozenset[str],
) -> PlacesEnd:  # fmt: skip
    """Both ends; `names`: of the convolution's kernel and of the result."""
    (reduction,) = (item for item in region.nodes if item.kind == "reduce")
    parts = scope.names.unique(f"{names[0].removesuffix('_kernel')}_parts")
    tiles = " * ".join(factor(scope.symbols.wrapper(size)) for size in node.shape[2:])
    tiles = f"triton.cdiv({tiles}, {schedule['BLOCK_N']})"
    text = _tile(node, reduction, region, groups, scope, reserved)
    text = EpilogueText(text.lines, (*text.extras, ("parts_ptr", parts)), text.helpers)
    return PlacesEnd(text, _finish(region, reduction, names, (parts, tiles), scope))


def _tile(
    node: Node, reduction: Node, region: Region, groups: Groups, scope: Scope,
    reserved: frozenset[str],
) -> EpilogueText:  # fmt: skip
    """Lines from `acc` to what a tile leaves of each channel."""
    emitter = epilogue_emitter(region, {node: "acc"}, groups, scope)
    emitter.batch = "batch[None, :]"
    emitter.names.taken |= reserved
    emitter.own_pointers |= {"parts_ptr", *(name for name in reserved if name.endswith("_ptr"))}
    lines: list[str] = []
    value = emitter.value(reduction.args[0], BodyLines(lines, lines)).code
    found, text = emitter.names.unique("of_tile"), MonoidText(emitter, reduction)
    kept = f"tl.where(col_mask[None, :], {value}, {text.neutrals[0]})"
    lines += [
        f"{found} = {text.folded([kept], axis=1)[0]}",
        "picture = (tile_n // tiles_n).to(tl.int64)",
        f"tl.store(parts_ptr + (picture * M + rows) * tiles_n + tile_n % tiles_n, {found},"
        " mask=row_mask)",
    ]
    return finished(emitter, lines, scope)


def _finish(
    region: Region, reduction: Node, names: tuple[str, str], workspace: tuple[str, str],
    scope: Scope,
) -> KernelCode:  # fmt: skip
    """The kernel that takes the parts of each row together, its launch, and their allocation."""
    form = Schedule("persistent", 1, ROWS)
    emitter = TileEmitter(
        region, form, scope.symbols, dict(scope.buffers), names=kernel_names(region)
    )  # fmt: skip
    emitter.names.taken |= {"parts", "more", "first", "tile", "tiles", "found"}
    emitter.own_pointers = frozenset(("parts_ptr",))
    emitter.row_values[reduction] = Text("found")
    text = MonoidText(emitter, reduction)
    (neutral,), (folded,) = text.neutrals, text.folded(["parts"])
    lines = [
        "row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        f"row_mask = row < {emitter.sizes.text(region.row_count)}",
        *emitter.split_index(region.rows, "row"),
        f"parts = tl.full((BLOCK_M, TILES), {neutral}, tl.float32)",
        "for first in range(0, tiles, TILES):",
        "    tile = first + tl.arange(0, TILES)[None, :]",
        "    more = tl.load(parts_ptr + row * tiles + tile, mask=row_mask & (tile < tiles),"
        f" other={neutral})",
        f"    parts = {text.joined(['parts'], ['more'])}",
        f"found = {folded}",
    ]
    lines += store_lines(emitter, BodyLines(lines, lines), rows=True, tiles=False)
    used = set(re.findall(r"\w+", "\n".join(lines)))
    sizes = [(key, value) for key, value in size_parameters(emitter) if key in used]
    parts, tiles = workspace
    name = scope.names.unique(f"{names[0].removesuffix('_kernel')}_of_pictures")
    keys = [key for key, _ in sizes]
    parameters = ["parts_ptr", *emitter.pointers, "tiles", *keys, "TILES: tl.constexpr",
                  "BLOCK_M: tl.constexpr"]  # fmt: skip
    doc = kernel_docstring(region, form)
    rows = scope.symbols.wrapper(region.row_count)
    wrapper = scope.symbols.wrapper
    values = [parts, *emitter.pointers.values(), tiles, *(wrapper(value) for _, value in sizes)]
    values += [f"TILES=min(triton.next_power_of_2({tiles}), {MOST_PARTS})", f"BLOCK_M={ROWS}"]
    values.append("num_warps=4")
    launch = wrapped_call(f"{name}[(triton.cdiv({rows}, {ROWS}),)]", values)
    made = f"{parts} = torch.empty(({wrapper(numel(region.stores[0].node.shape))}) * {tiles},"
    allocation = f"{made} device={names[1]}.device, dtype=torch.float32)"
    source = function_text(name, parameters, doc, lines)
    return KernelCode(source, (name,), (launch,), frozenset(emitter.helpers), (allocation,))
