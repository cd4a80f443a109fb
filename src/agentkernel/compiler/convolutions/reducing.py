"""Epilogues that reduce the channels of a convolution in its tile, which is never stored.

A tile holds all channels of its places. What follows is the text of a kernel over rows, a place
each, whose columns are the channels: a function that the convolution calls with its sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.compiler.axes import Access, Atom, contiguous_strides
from agentkernel.compiler.convolutions.schedules import by_sums
from agentkernel.compiler.convolutions.spec import Geometry
from agentkernel.compiler.emit import BodyLines, Emitter, Schedule
from agentkernel.compiler.expressions import Text
from agentkernel.compiler.fusion import Axis, Region
from agentkernel.compiler.ir import Node, same
from agentkernel.compiler.kernel import (
    function_text,
    kernel_names,
    size_parameters,
    wrapped_call,
)
from agentkernel.compiler.products.places import Groups, read_of
from agentkernel.compiler.products.step import EpilogueText, Scope
from agentkernel.compiler.rows_reductions import column_lines, kernel_docstring, persistent_body

MOST_CHANNELS = 256
"""Channels of a place that a tile holds."""
OF_ONE_NUMBER = ("sum", "max", "min")
"""Reductions of which a part leaves one number."""


def reduces_channels(node: Node, geometry: Geometry, groups: Groups, region: Region) -> bool:
    """True where the region's rows are the places of the result `node`, its columns the channels of
    one, and it stores one result."""
    if geometry.groups > 1 or by_sums(geometry) or not 1 < geometry.outside <= MOST_CHANNELS:
        return False
    batch, channels, places = groups
    rows = atoms_in(region.rows)
    # The text of a single row has no index of rows, which a tile always has.
    return (
        bool(rows)
        and rows == [*batch, *places]
        and atoms_in(region.cols) == [*channels]
        and read_of(node, region) is node
        and reduces_to_one(region)
    )


def reduces_to_one(region: Region) -> bool:
    """True where a region reduces, scans nothing, and stores one result as it lies by default."""
    if not region.reduces or region.scans or len(region.stores) != 1:
        return False
    store = region.stores[0]
    return all(map(same, store.strides, contiguous_strides(store.node.shape)))


def atoms_in(axes: Sequence[Axis]) -> list[Atom]:
    """The atoms of axes, outermost first."""
    return [atom for axis in axes for atom in axis.atoms]


@dataclass
class TileEmitter(Emitter):
    """Writes a kernel over rows whose values another one has in registers."""

    held: Mapping[Node, str] = field(default_factory=dict)
    """A stored value -> the name of its tile."""

    @property
    def tiles_rows(self) -> bool:
        """Never: its rows are those of the other kernel's tile, past the end of any axis."""
        return False

    def _load(self, node: Node, access: Access, body: BodyLines) -> Text:
        return Text(self.held[node]) if node in self.held else super()._load(node, access, body)


def reducing_end(
    node: Node, region: Region, groups: Groups, schedule: Mapping[str, int],
    names: tuple[str, str], scope: Scope,
) -> tuple[EpilogueText, str]:  # fmt: skip
    """The line that calls the function, with what that reads, and its text; `names`: of the
    convolution's kernel and of the result."""
    form = Schedule("persistent", schedule["BLOCK_M"], schedule["BLOCK_N"])
    name = scope.names.unique(f"{names[0].removesuffix('_kernel')}_of_channels")
    emitter = TileEmitter(
        region, form, scope.symbols, dict(scope.buffers), names=kernel_names(region),
        held={node: "acc"},
    )  # fmt: skip
    emitter.names.taken.add("acc")
    emitter.own_pointers = frozenset(("x_ptr", "weight_ptr", "bias_ptr", "out_ptr"))
    given, lines = _rows(emitter, groups)
    lines += [*column_lines(emitter, "0"), *persistent_body(emitter)]
    used = set(re.findall(r"\w+", "\n".join(lines)))
    sizes = [(key, value) for key, value in size_parameters(emitter) if key in used]
    fixed = [f"{key}: tl.constexpr = {value}" for key, value in sizes if value.is_number]
    free = [(key, scope.symbols.wrapper(value)) for key, value in sizes if not value.is_number]
    extras = [item for item in emitter.pointers.items() if item[1] != names[1]]
    passed = {key: "out_ptr" if text == names[1] else key for key, text in emitter.pointers.items()}
    # Products of sizes, which addresses are made of, may be past 2**31.
    passed |= {key: f"tl.cast({key}, tl.int64)" for key, _ in free}
    parameters = ["acc", *given, *passed, "BLOCK_M: tl.constexpr", "BLOCK_N: tl.constexpr"]
    arguments = ["tl.trans(acc)", *given.values(), *passed.values(), "BLOCK_N", "BLOCK_M"]
    text = function_text(name, parameters, kernel_docstring(region, form), [*fixed, *lines])
    call = wrapped_call(name, arguments).splitlines()
    return EpilogueText(tuple(call), (*extras, *free), frozenset(emitter.helpers)), text


def _rows(emitter: TileEmitter, groups: Groups) -> tuple[dict[str, str], list[str]]:
    """Parameters that say which rows a tile has, as the convolution calls them, and lines that take
    a row's number apart."""
    mask = {"row_mask": "col_mask[:, None]"}
    rows = emitter.region.rows
    if [axis.atoms for axis in rows] == [groups[0], groups[2]]:
        return {"row_0": "batch[:, None]", "row_1": "cols.to(tl.int64)[:, None]"} | mask, []
    return {"row": "(batch * N + cols)[:, None]"} | mask, emitter.split_index(rows, "row")
