"""Emission of the values of one fused region under one schedule: what all kernel forms share.

A schedule holds the form, the tile sizes and the launch constants of one kernel.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import sympy
import torch

from agentkernel.compiler.axes import Access, Atom, Store
from agentkernel.compiler.expressions import (
    ATOM,
    COMPARE,
    LOGIC,
    ROUNDED,
    SUM,
    TRITON_TYPES,
    KernelSizes,
    Symbols,
    Text,
    literal,
    pointwise_text,
)
from agentkernel.compiler.fusion import Axis, Region, computing_node, index_strides
from agentkernel.compiler.ir import Expr, Node, compute_dtype, same
from agentkernel.compiler.kernel_helpers import HELPERS

Form = Literal["flat", "tile", "persistent", "looped", "split"]
PERSISTENT_LIMIT = 32768
"""Most elements that a program holds in registers: 64 of fp32 a thread at 16 warps."""
SCAN_LIMIT = 8192
"""The same where it scans them: pairs of 32 a thread spill (608 bytes of stack at 64)."""


@dataclass(frozen=True)
class Schedule:
    """Constants of one kernel, and its form.

    `flat` has one index, `tile` rows and columns without reductions; `persistent` holds whole rows
    in registers, `looped` walks them tile by tile, `split` shares each row among several programs
    and finishes in a second kernel.
    """

    form: Form
    block_cols: int
    block_rows: int = 1
    num_warps: int = 4
    invariant_first: bool = False
    """Load what all rows share (weights) before the row itself."""
    chunks: int = 1
    """Programs a row under `split`."""

    @property
    def constants(self) -> dict[str, int]:
        """What stands in the launch, for people and certificates."""
        result = {"BLOCK_N": self.block_cols, "num_warps": self.num_warps}
        if self.block_rows > 1 or self.form == "tile":
            result["BLOCK_M"] = self.block_rows
        if self.invariant_first:
            result["weights_first"] = 1
        if self.form == "split":
            result["CHUNKS"] = self.chunks
        return result


def persistent_limit(schedule: Schedule, region: Region) -> int:
    """Longest row that a persistent schedule takes where the length is free."""
    most = SCAN_LIMIT if region.scans else PERSISTENT_LIMIT
    return max(schedule.block_cols, most // schedule.block_rows)


def long_rows(schedule: Schedule, region: Region) -> Schedule:
    """The looped schedule that serves rows past that limit."""
    if schedule.block_rows > 16:
        return Schedule("looped", 32, schedule.block_rows, 4)
    if region.scans:
        return Schedule("looped", 2048, 1, 4)
    return Schedule("looped", 4096, 1, 16)


INT32_LIMIT = 2**31 - 2**16
"""Elements that an index of 32 bits counts, with room for a tile past the end."""
INLINE_LIMIT = 44
"""An expression that is used once and no longer than this is written where it is used."""
RESERVED = frozenset(("row", "col", "mask", "tl", "triton", "torch", "start", "row_mask",
                      "col_mask", "near", "near_mask", "n_rows", "n_cols", "chunk",
                      "self", "math", "nn", "libdevice", *HELPERS))  # fmt: skip


def identifier(text: str) -> str:
    """`text` as a Python name that is neither a keyword nor used by the kernels themselves."""
    name = re.sub(r"\W", "_", text).strip("_") or "value"
    if name[0].isdigit():
        name = f"v_{name}"
    taken = keyword.iskeyword(name) or name in RESERVED or name in dir(builtins)
    return f"{name}_value" if taken else name


@dataclass
class Names:
    """Distinct names in one scope."""

    taken: set[str] = field(default_factory=set)

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`... where it is taken."""
        name, count = identifier(wanted), 0
        stem = name
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name


MOVES = ("copy", "gather")
"""What gives values that were there, in their own type."""


@dataclass
class BodyLines:
    """Lines of a kernel in the making: tile values go to `here`, row values to `before`."""

    here: list[str]
    before: list[str]


@dataclass
class Emitter:
    """Writes the values of one region under one schedule.

    A *tile* value varies over columns ([BLOCK_M, BLOCK_N], or [BLOCK_N] with one row a program), a
    *row* value does not ([BLOCK_M, 1], or a scalar).
    """

    region: Region
    schedule: Schedule
    symbols: Symbols
    buffers: dict[Node, str]
    """Buffer or stored node -> its name in the wrapper."""
    helpers: set[str] = field(default_factory=set)
    asserts: bool = False
    """Whether the kernel raises for an index out of range."""
    names: Names = field(default_factory=Names)
    row_values: dict[Node, Text] = field(default_factory=dict)
    tile_values: dict[Node, Text] = field(default_factory=dict)
    differences: dict[tuple[Node, Node], Text] = field(default_factory=dict)
    """(x, mean) -> x - mean, where the statistics have computed it already."""
    numerators: dict[tuple[Node, Node], Text] = field(default_factory=dict)
    """(x, max) -> exp(x - max), likewise."""
    pointers: dict[str, str] = field(default_factory=dict)
    """Parameter -> wrapper variable, in order of appearance."""
    eviction: str = ""
    given: dict[Node, str] = field(default_factory=dict)
    """Names of values that a later sweep computes again."""
    columns: str = "col"
    """The variable of the columns at hand."""
    width: int = 0
    """How many they are, where that is not the schedule's tile."""
    is_full: bool = False
    """Whether every place of the tile at hand is known to exist."""
    own_pointers: frozenset[str] = frozenset()
    """Parameters that the kernel around the values has already."""

    def __post_init__(self) -> None:
        flat = self.schedule.form == "flat"
        self.sizes = KernelSizes(
            self.symbols, self.region.row_count, self.region.col_count,
            "n_elements" if flat else "n_cols",
        )  # fmt: skip
        self.moves = self._only_moves()
        """Whether values of one type go from place to place and nothing is computed with them."""
        self.uses = self._count_uses()
        self.hoisted = {
            arg.root
            for node in self.region.nodes
            if self.region.spans(node)[1]
            for arg in node.operands
            if arg.kind not in ("constant", "size") and not self._in_tile(arg)
        }
        """Row values that tile values use: computed once a row, before the tile."""

    def _only_moves(self) -> bool:
        nodes, stores = self.region.nodes, [store.node for store in self.region.stores]
        read = [access.buffer for access in self.region.layout.loads.values()]
        floats = {node.dtype for node in (*nodes, *stores, *read) if _floats(node)}
        return (
            len(floats) == 1
            and all(_floats(node) and node.kind != "scatter" for node in stores)
            and all(
                node.op in MOVES if _floats(node) else not any(map(_is_float_read, node.args))
                for node in nodes
            )
        )

    def kept_as(self, dtype: torch.dtype) -> torch.dtype:
        """The type in which a value of that type is held: its own where the region only moves."""
        return dtype if self.moves else compute_dtype(dtype)

    # shape of the program

    @property
    def many_rows(self) -> bool:
        """True where a program holds several rows, so that values have two dimensions."""
        return bool(self.region.rows) and (
            self.schedule.block_rows > 1 or self.schedule.form == "tile"
        )

    @property
    def tiles_rows(self) -> bool:
        """True where a program's rows lie along the innermost of several axes, which memory is
        walked along: in `row % size` Triton does not see that they are neighbours, and each lane
        of a warp would load from a line of its own."""
        rows = self.region.rows
        if not self.many_rows or len(rows) < 2:
            return False
        accesses = (*self.region.layout.loads.values(), *self.region.store_accesses)
        along = any(rows[-1].stride(access.resolved()) == 1 for access in accesses)
        size, block = self.symbols.hint(rows[-1].size), self.schedule.block_rows
        return along and (size >= 2 * block or (size > 0 and size % block == 0))

    def walks_tile(self, access: Access) -> tuple[bool, bool]:
        """Whether an access varies over the rows of a tile, and over its columns."""
        strides = access.resolved()
        rows = any(axis.stride(strides) != 0 for axis in self._rows_of_tile)
        return rows, self.touches(access)[1]

    def in_tile(self, node: Node) -> tuple[bool, bool]:
        """Whether a value varies over the rows of a tile, and over its columns."""
        atoms = self.region.atoms_of(node)
        rows = any(atom in atoms for axis in self._rows_of_tile for atom in axis.atoms)
        return rows, self.region.spans(node)[1]

    @property
    def _rows_of_tile(self) -> tuple[Axis, ...]:
        """The axes along which a program has several rows: places on the others are its own, and
        what varies over these alone is loaded once for all of its rows."""
        return self.region.rows[-1:] if self.tiles_rows else self.region.rows

    @property
    def divides_index(self) -> bool:
        """True where one flat index stands for several axes, and is divided into them."""
        return self.schedule.form == "flat" and len(self.region.cols) > 1

    @property
    def reduce_axis(self) -> int:
        """Position of the columns in a tile."""
        return 1 if self.many_rows else 0

    @property
    def row_mask(self) -> str | None:
        """The mask over rows, None where no row is out of range."""
        return "row_mask" if self.many_rows else None

    @property
    def col_mask(self) -> str | None:
        """The mask over columns, None where the tiles divide the row exactly."""
        count = self.region.col_count
        if self.is_full:
            return None
        name = f"{self.columns}_mask"
        if self.schedule.form == "flat" or not count.is_number:
            return name
        unit = self.width or self.schedule.block_cols * self.schedule.chunks
        return name if int(count) % unit else None

    @property
    def narrow(self) -> bool:
        """True where every result is rounded to 16 bits, so that a coarse exp is exact enough."""
        return all(
            store.node.dtype in (torch.float16, torch.bfloat16) for store in self.region.stores
        )

    def mask(self, rows: bool, cols: bool) -> str | None:
        """The mask of an access that varies over rows, columns or both."""
        parts = [
            name
            for name, used in ((self.row_mask, rows), (self.col_mask, cols))
            if name is not None and used
        ]
        return " & ".join(parts) or None

    @contextmanager
    def on_columns(self, name: str, width: int) -> Iterator[None]:
        """Within, tile values are those of `width` other columns, and go by names of their own."""
        kept = self.columns, self.width, self.tile_values, self.given
        self.columns, self.width, self.tile_values, self.given = name, width, {}, {}
        try:
            yield
        finally:
            self.columns, self.width, self.tile_values, self.given = kept

    # names

    def pointer(self, buffer: Node, start: int = 0) -> str:
        """The kernel's pointer parameter for a buffer, from its element `start` on."""
        name = self.buffers[buffer]
        variable = f"{name}.view(-1)[{start}:]" if start else name
        for parameter, known in self.pointers.items():
            if known == variable:
                return parameter
        stem = f"{identifier(_short(name))}_ptr"
        parameter, count = stem, 0
        while parameter in self.pointers or parameter in self.own_pointers:
            count += 1
            parameter = f"{stem.removesuffix('_ptr')}_{count}_ptr"
        self.pointers[parameter] = variable
        return parameter

    def _count_uses(self) -> dict[Node, int]:
        uses: dict[Node, int] = {}
        for node in self.region.nodes:
            for arg in node.operands:
                bottom = computing_node(arg) if computing_node(arg) in self.region.nodes else arg
                weight = 3 if node.kind == "reduce" else 1
                for item in {arg, arg.root, bottom}:
                    uses[item] = uses.get(item, 0) + weight
        for store in self.region.stores:
            root = _before_rounding(store.node).root
            uses[root] = uses.get(root, 0) + 3
        return uses

    # indices

    def index(self, axis: Axis) -> str:
        """The index variable of an axis."""
        for axes, name in ((self.region.rows, "row"), (self.region.cols, self.col_name)):
            if axis in axes:
                return name if len(axes) == 1 else f"{name}_{axes.index(axis)}"
        raise AssertionError(axis)

    @property
    def col_name(self) -> str:
        """The flattened column index."""
        return "offset" if self.schedule.form == "flat" else self.columns

    def split_index(self, axes: tuple[Axis, ...], name: str) -> list[str]:
        """Lines that take a flattened index apart, innermost axis last."""
        if len(axes) <= 1:
            return []
        lines: list[str] = []
        inner: Expr = sympy.Integer(1)
        used = self._used_axes()
        for position in reversed(range(len(axes))):
            axis = axes[position]
            code = name if inner == 1 else f"{name} // {self.sizes.text(inner)}"
            if position:
                code = f"{code} % {self.sizes.text(axis.size)}"
            if axis in used:
                lines.append(f"{name}_{position} = {code}")
            inner = inner * axis.size
        return list(reversed(lines))

    def _used_axes(self) -> set[Axis]:
        accesses = [*self.region.layout.loads.values(), *self.region.store_accesses]
        walked = [item.resolved() for item in accesses if not self._walks_along(item.resolved())]
        axes = (*self.region.rows, *self.region.cols)
        used = {axis for axis in axes for item in walked if axis.stride(item) != 0}
        for node in self.region.layout.dims:
            if node.kind == "iota":
                used |= {axis for axis in axes if self.atoms_of_iota(node) & set(axis.atoms)}
        return used

    def atoms_of_iota(self, node: Node) -> set[Atom]:
        """The atoms along which an index counts."""
        axis = node.attrs[0]
        assert isinstance(axis, int)
        return {leaf for atom in self.region.layout.dims[node][axis] for leaf in atom.leaves()}

    def address(self, access: Access) -> str:
        """offset + sum of index * stride."""
        strides = access.resolved()
        terms = [] if access.offset == 0 else [self.sizes.text(access.offset)]
        if self._walks_along(strides):
            return " + ".join([*terms, self.col_name])
        for axis in (*self.region.rows, *self.region.cols):
            stride = axis.stride(strides)
            if stride == 1:
                terms.append(self.index(axis))
            elif stride != 0:
                index = self.index(axis)
                narrow = axis in self.region.cols and not self.divides_index
                narrow |= axis in self.region.rows[-1:] and self.tiles_rows
                if narrow and needs_int64(axis.size * stride):
                    index = f"{index}.to(tl.int64)"
                terms.append(f"{index} * {self.sizes.text(stride)}")
        return " + ".join(terms)

    def _walks_along(self, strides: dict[Atom, Expr]) -> bool:
        """True where a flat index over several axes is the address itself."""
        if not self.divides_index:
            return False
        inner: Expr = sympy.Integer(1)
        for axis in reversed(self.region.cols):
            if not same(axis.stride(strides), inner):
                return False
            inner = inner * axis.size
        return True

    def place(self, buffer: Node, access: Access) -> str:
        """Pointer plus address."""
        start = self._starts.get(buffer, 0)
        pointer = self.pointer(buffer, start)
        address = self.address(replace(access, offset=access.offset - start))
        return f"{pointer} + {address}" if address else pointer

    @cached_property
    def _starts(self) -> dict[Node, int]:
        """The first element that is read of each buffer of which one place along a dimension is
        wanted, a step of many: the launch begins there, so that the steps share a kernel."""
        reads: dict[Node, dict[Node, Expr]] = {}
        for value, access in self.region.layout.loads.items():
            reads.setdefault(access.buffer, {})[value] = access.offset
        stored = {store.node.root for store in self.region.stores}
        return {
            buffer: int(min(offsets.values()))
            for buffer, offsets in reads.items()
            if buffer not in stored
            and all(map(_is_place, offsets))
            and all(offset.is_number for offset in offsets.values())
        }

    def touches(self, access: Access) -> tuple[bool, bool]:
        """Whether an access varies over rows, and over columns."""
        strides = access.resolved()
        rows = any(axis.stride(strides) != 0 for axis in self.region.rows)
        return rows, any(axis.stride(strides) != 0 for axis in self.region.cols)

    # values

    def value(self, node: Node, body: BodyLines) -> Text:
        """The text of a value, emitting what it needs first."""
        known = self.row_values.get(node) or self.tile_values.get(node)
        if known is None:
            known = self._emit(node, body)
            in_tile = self._in_tile(node)
            (self.tile_values if in_tile else self.row_values)[node] = known
        return known

    def _in_tile(self, node: Node) -> bool:
        if node.kind in ("constant", "size"):
            return False
        return self.region.spans(node)[1] if node in self.region.layout.dims else False

    def _emit(self, node: Node, body: BodyLines) -> Text:
        layout = self.region.layout
        if node.kind == "constant":
            return _constant(node)
        if node.kind == "size":
            size = node.attrs[0]
            assert isinstance(size, sympy.Expr)
            return Text(self.sizes.text(size))
        if node.kind == "iota":
            return self._iota(node)
        if node in layout.loads:
            return self._load(node, layout.loads[node], body)
        if node.kind == "view":
            return self.value(node.args[0], body)
        if node.op == "within":
            return self._within(node, body)
        if node.op == "gather":
            return self._gather(node, body)
        if node.kind == "pointwise":
            return self._pointwise(node, body)
        raise AssertionError(f"{node.kind} {node.op} was not reduced before its use")

    def _iota(self, node: Node) -> Text:
        steps = index_strides(node, self.region.layout)
        terms: list[str] = []
        for axis in (*self.region.rows, *self.region.cols):
            step = axis.stride(steps)
            if step != 0:
                code = self.index(axis)
                terms.append(code if step == 1 else f"{code} * {self.sizes.text(step)}")
        return Text(" + ".join(terms) or "0", 3)

    def _load(self, node: Node, access: Access, body: BodyLines) -> Text:
        buffer = access.buffer
        rows, cols = self.touches(access)
        arguments = [self.place(buffer, access)]
        values = self.tile_values if cols else self.row_values
        for other, known in self.region.layout.loads.items():
            if (
                other in values
                and known.buffer is buffer
                and self.place(buffer, known) == arguments[0]
            ):
                return values[other]
        mask = self.mask(*self.walks_tile(access))
        if mask is not None:
            arguments += [f"mask={mask}", "other=0.0" if _floats(buffer) else "other=0"]
        if self.eviction and rows and cols:
            arguments.append(f'eviction_policy="{self.eviction}"')
        code = f"tl.load({', '.join(arguments)})"
        if self.kept_as(buffer.dtype) != buffer.dtype:
            code += f".to({TRITON_TYPES[self.kept_as(buffer.dtype)]})"
        return self.assign(_short(self.buffers[buffer]), code, body, tile=cols, node=node)

    def _within(self, node: Node, body: BodyLines) -> Text:
        """An index, asserted to lie in its dimension wherever there is an element."""
        index = self._named(node.args[0], self._argument(node, node.args[0], body), body)
        size = self.value(node.args[1], body)
        rows, cols = self.in_tile(node)
        mask = self.mask(rows, cols)
        held = f"(({index.code} >= 0) & ({index.code} < {size.code}))"
        held += "" if mask is None else f" | ~({mask})"
        line = f'tl.device_assert({held}, "index out of range")'
        (body.here if cols else body.before).append(line)
        self.asserts = True
        return index

    def _gather(self, node: Node, body: BodyLines) -> Text:
        table, index = node.args[-1], self._argument(node.args[0], node.args[0], body)
        rows, cols = self.in_tile(node)
        guards = [self.value(guard, body).within(COMPARE) for guard in node.operands[1:]]
        guards += [mask for mask in [self.mask(rows, cols)] if mask is not None]
        mask = " & ".join(guards) or None
        code = f"tl.load({self.pointer(table)} + {index.within(3)}"
        if mask is not None:
            code += f", mask={mask}, other={'0.0' if _floats(table) else '0'}"
        code += ")"
        if self.kept_as(table.dtype) != table.dtype:
            code += f".to({TRITON_TYPES[self.kept_as(table.dtype)]})"
        return self.assign(node.name, code, body, tile=cols, node=node)

    def _pointwise(self, node: Node, body: BodyLines) -> Text:
        if (found := self._shared(node)) is not None:
            return found
        args = [self._argument(node, arg, body) for arg in node.args]
        strong = [arg for arg in node.args if arg.kind not in ("constant", "size")]
        source = compute_dtype((strong or list(node.args))[0].dtype)

        def written(operands: list[Text]) -> Text:
            result = compute_dtype(node.dtype)
            return pointwise_text(
                node.op, operands, source, result, self.helpers, coarse=self.narrow
            )

        text = written(args)
        named = [
            self._named(operand, arg, body) if text.code.count(arg.code) > 1 else arg
            for operand, arg in zip(node.args, args, strict=True)
        ]
        if named != args:
            args, text = named, written(named)
        tile = self.region.spans(node)[1]
        once = self.uses.get(node, 0) <= 1 and (tile or node not in self.hoisted)
        unchanged = node.op in ("copy", "cast") and text.code == args[0].code
        # A cast that changes nothing has the uses of what it casts: written out, not once.
        if unchanged and (once or text.code.isidentifier()):
            return text
        if once and len(text.code) <= INLINE_LIMIT:
            return text
        return self.assign(node.name, text.code, body, tile=tile, node=node)

    def _named(self, node: Node, text: Text, body: BodyLines) -> Text:
        """A name for what an operation writes out twice, such as a ReLU its argument."""
        if node.kind in ("constant", "size", "iota") or text.code.isidentifier():
            return text
        tile = self._in_tile(node)
        name = self.assign(node.name, text.code, body, tile=tile, node=node)
        (self.tile_values if tile else self.row_values)[node] = name
        return name

    def _argument(self, node: Node, arg: Node, body: BodyLines) -> Text:
        """The text of `arg`; an index that is computed with is as wide as eager's."""
        text = self.value(arg, body)
        if arg.root.kind == "iota" and node.dtype == torch.int64 and text.code != "0":
            return Text(f"({text.code}).to(tl.int64)")
        return text

    def _shared(self, node: Node) -> Text | None:
        """What a reduction in the same kernel has left behind."""
        if node.op == "sub":
            return self.differences.get((node.args[0], node.args[1]))
        if node.op == "exp" and node.args[0].op == "sub":
            left, right = node.args[0].args
            return self.numerators.get((left, right))
        return None

    def assign(
        self, wanted: str, code: str, body: BodyLines, *, tile: bool, node: Node | None = None
    ) -> Text:
        """Write `name = code` and give the name; the same name again for the same node."""
        name = self.given.get(node) if node is not None else None
        if name is None:
            aside = tile and self.columns != "col"
            name = self.names.unique(f"{self.columns}_{wanted}" if aside else wanted)
        if node is not None:
            self.given[node] = name
        (body.here if tile else body.before).append(f"{name} = {code}")
        return Text(name, ATOM)

    def store_lines(self, store: Store, access: Access, body: BodyLines) -> str:
        """The line that stores a value."""
        value = self.value(_before_rounding(store.node), body)
        place, mask = self.stored_at(store, access)
        guard = "" if mask is None else f", mask={mask}"
        code = value.code
        if self.kept_as(store.node.dtype) != store.node.dtype:
            code = f"{value.within(ATOM - 1)}.to({TRITON_TYPES[store.node.dtype]})"
        return f"tl.store({place}, {code}{guard})"

    def stored_at(self, store: Store, access: Access) -> tuple[str, str | None]:
        """The addresses of what is stored, and their mask."""
        rows, cols = self.touches(access)
        place = self.place(store.node, access)
        one = self.region.col_count == 1 and self.schedule.form == "persistent"
        if one and not cols and not self.many_rows:
            # Rows of one element: what a reduction left behind is a tile of one, which has no
            # place at a lone address.
            cols, place = True, f"{place} + {self.col_name}"
        return place, self.mask(rows, cols)

    def full_tile(self, node: Node, text: Text) -> Text:
        """The value with every dimension of the tile, for a reduction."""
        rows, cols = self.in_tile(node) if node in self.region.layout.dims else (False, False)
        if cols and (rows or not self.many_rows or not self.region.rows):
            return text
        shape = "[BLOCK_M, BLOCK_N]" if self.many_rows else "[BLOCK_N]"
        kind = TRITON_TYPES[compute_dtype(node.dtype)]
        # Truth values have one bit, of which a sum is an exclusive or.
        sign, strength = ("|", LOGIC) if node.dtype == torch.bool else ("+", SUM)
        return Text(f"{text.within(COMPARE)} {sign} tl.zeros({shape}, {kind})", strength)


def _before_rounding(node: Node) -> Node:
    """The value of which a store makes `node`: it rounds by itself."""
    return node.args[0] if node.op in ROUNDED else node


def needs_int64(elements: Expr) -> bool:
    """Whether so many elements may be more than 32 bits count; free sizes may."""
    return not elements.is_number or int(elements) > INT32_LIMIT


def _is_place(value: Node) -> bool:
    """Whether a view is of one place along some dimension but the last of what is stored."""
    while value.kind == "view":
        below = value.args[0]
        if value.op == "slice" and value.attrs[0] != len(below.shape) - 1:
            dim = value.attrs[0]
            assert isinstance(dim, int)
            if value.shape[dim] == 1 and below.shape[dim] != 1:
                return True
        value = below
    return False


def _short(variable: str) -> str:
    """`self.ln.weight` -> `weight`."""
    plain = variable.removesuffix(".contiguous()")
    return plain.rsplit(".", 1)[-1] if plain.startswith("self") else plain


def _constant(node: Node) -> Text:
    value = node.attrs[0]
    negative = isinstance(value, int | float) and value < 0
    return Text(literal(value), 4 if negative else ATOM)


def _is_float_read(node: Node) -> bool:
    return _floats(node) and node.kind not in ("constant", "size")


def _floats(node: Node) -> bool:
    return node.dtype.is_floating_point
