"""Convolutions as products of windows of the picture with the weights, no window ever stored.

The product is X[places, K] @ W[K, channels out], K running over the window's taps and the channels
in. A transposed convolution is one dense convolution for each residue of the output's place modulo
the stride (its phase). Three ways of reading X (`READ` of a schedule):

0. each tap's channels, as the picture lies: few bytes where the window is one place;
1. taps and channels as one index, as the picture lies: where few channels come in;
2. a copy with the channels last and the padding written out (`packing.py`), whose loads are wide
   and unmasked: where a window holds many elements.

In each W is copied to [block, channels out, K of the block], rounded to what a tensor core reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from agentkernel.compiler.convolutions.packing import (
    AS_IT_LIES,
    AT_ONCE,
    PACKED,
    Packing,
)
from agentkernel.compiler.convolutions.spec import ConvolutionSpec, Pooling, factor, index_option
from agentkernel.compiler.products.spec import call_lines, function

MASK_BITS = 31
"""Taps whose reads inside of the picture one integer can tell."""


class Implicit:
    """The text of one convolution under one schedule; of a plain one, which others change."""

    kind = "Convolution"
    read_mask = "col_mask"
    """What of the tile is read: the kernel's name of it."""

    def __init__(self, spec: ConvolutionSpec, schedule: Mapping[str, int]) -> None:
        self.spec, self.schedule, self.shape = spec, schedule, spec.geometry
        self.dims = range(self.shape.rank)
        self.packing = Packing(spec.geometry, schedule["READ"], schedule["BLOCK_K"], spec.dtype)

    @property
    def rounds(self) -> bool:
        """Whether elements of X are rounded as they are read."""
        return self.spec.dtype == "float32" and self.packing.read != PACKED

    def source(self) -> str:
        spec, packed = self.spec, self.packing.read == PACKED
        fixed = [f"{side}_{dim}" for side in ("IN", "OUT") for dim in self.dims]
        fixed += [f"POOL_{dim}" for dim, _ in enumerate(self._pooled)]
        fixed += ["INDEX", *(["TF32"] if spec.dtype == "float32" else []), "BLOCK_M", "BLOCK_N",
                  "BLOCK_K"]  # fmt: skip
        signature = [
            "x_ptr", "weight_ptr", *(["bias_ptr"] if spec.bias else []), "out_ptr",
            *(name for name, _ in spec.extras), "batches",
            *(f"{name}: tl.constexpr" for name in fixed),
        ]  # fmt: skip
        lines = [
            f'"""{self._title()}"""',
            *self._sizes(),
            *self._places(),
            *(self._masks() if not packed else ()),
            "",
            *self._total(),
            "",
            *self._end(),
        ]
        return function(spec.name, signature, lines)

    @property
    def _pooled(self) -> Sequence[str]:
        return self.spec.pooling.counts if self.spec.pooling else ()

    def _title(self) -> str:
        how = {
            AS_IT_LIES: "tap by tap",
            AT_ONCE: "taps and channels at once",
            PACKED: "of a copy with channels last",
        }
        return f"{self.kind}, {how[self.packing.read]}, with its epilogue."

    def _sizes(self) -> list[str]:
        shape = self.shape
        area = " * ".join(f"OUT_{dim}" for dim in self.dims)
        lines = [f"M: tl.constexpr = {shape.outside * shape.groups}"]
        if not self.spec.pooling or self._end_reads("tile") or self._end_reads("N"):
            lines.append(f"N: tl.constexpr = {area}")
        if self.packing.read == PACKED:
            lines += [f"WIDE_{dim}: tl.constexpr = {size}" for dim, size in self._wide()]
        plane = " * ".join(f"{self._side}_{dim}" for dim in self.dims)
        lines.append(f"PLANE: tl.constexpr = {plane}")
        return lines

    def _wide(self) -> list[tuple[int, str]]:
        return [(dim, self.packing.width(dim)) for dim in self.dims]

    @property
    def _side(self) -> str:
        """What the sizes of the picture that is read are called."""
        return "WIDE" if self.packing.read == PACKED else "IN"

    def _places(self) -> list[str]:
        """Lines of the tile's channels and places, and where each place's window begins."""
        return [
            "program = tl.program_id(0)",
            *self._channels(),
            *self._tile_places(),
            *(f"at_{dim} = {self._window_start(dim)}" for dim in self.dims),
            *self._start_lines("batch"),
        ]

    def _tile_places(self) -> list[str]:
        """Lines of the places of a tile, flat and along each dimension."""
        if self.spec.pooling:
            return self._places_of_windows(self.spec.pooling)
        apart = self.schedule.get("APART")
        return [
            *(self._places_of_one() if apart else self._places_in_turn()),
            *self._split("cols", "out", [f"OUT_{dim}" for dim in self.dims]),
        ]

    def _places_of_windows(self, pooling: Pooling) -> list[str]:
        """Lines of the places of a tile: windows in turn, the places of each one behind the
        other."""
        area = " * ".join(f"POOL_{dim}" for dim in self.dims)
        taps = math.prod(pooling.taps)
        lines = [
            "place = tile_n.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)",
            f"spot = place // {taps}",
            f"col_mask = spot < tl.cast(batches, INDEX) * ({area})",
            f"batch = spot // ({area})",
            f"spot = (spot % ({area})).to(tl.int32)",
            f"in_window = (place % {taps}).to(tl.int32)",
            *self._split("spot", "spot", [f"POOL_{dim}" for dim in self.dims]),
            *self._split("in_window", "in_window", list(map(str, pooling.taps))),
            *(
                f"out_{dim} = spot_{dim} * {pooling.taps[dim]} + in_window_{dim}"
                for dim in self.dims
            ),
        ]
        if not self._end_reads("tile") and not self._end_reads("cols"):
            return lines
        return [*lines, f"cols = {self._flat('out', 'OUT')}"]

    def _window_start(self, dim: int) -> str:
        """Where the window of a place begins."""
        step, shift = self.shape.stride[dim], self._lead(dim) - self.shape.padding[dim]
        place = f"out_{dim}" if step == 1 else f"out_{dim} * {step}"
        return place if shift == 0 else f"{place} {'+' if shift > 0 else '-'} {abs(shift)}"

    def _channels(self) -> list[str]:
        """Lines of the tile's number among those of places, and of its channels."""
        shape = self.shape
        tiles = -(-shape.outside // self.schedule["BLOCK_M"])
        masked = self._end_reads("row_mask") or self._end_reads("tile_mask")
        lines = [
            "tile_m = 0" if tiles == 1 else f"tile_m = program % {tiles}",
            "tile_n = program" if tiles == 1 else f"tile_n = program // {tiles}",
            "channel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)",
            *([f"row_mask = channel < {shape.outside}"] if masked else []),
            f"channel = tl.minimum(channel, {shape.outside - 1})",
        ]
        if shape.groups > 1:
            return [*lines, "group = tl.program_id(1)", f"rows = group * {shape.outside} + channel"]
        return [*lines, "rows = channel"]

    def _places_in_turn(self) -> list[str]:
        """Lines of the places of a tile, which goes on in the next picture."""
        return [
            "place = tile_n.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)",
            "col_mask = place < tl.cast(batches, INDEX) * N",
            "batch = place // N",
            "cols = (place % N).to(tl.int32)",
        ]

    def _places_of_one(self) -> list[str]:
        """The same of a tile within one picture, so that it is known which places are neighbours:
        elsewhere an odd number of places hides that, and Triton stores across channels."""
        return [
            "tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N",
            "batch = (tile_n // tiles_n).to(INDEX) + tl.zeros((BLOCK_N,), INDEX)",
            "cols = tile_n % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)",
            "col_mask = cols < N",
        ]

    def _start_lines(self, image: str) -> list[str]:
        shape = self.shape
        if self.packing.read != PACKED:
            begin = f"{image} * ({shape.inside * shape.groups} * PLANE)"
            if shape.groups > 1:
                begin += f" + group.to(INDEX) * ({shape.inside} * PLANE)"
            return [f"start = {begin} + {self._offset('at')}"]
        # Every window that is read lies in the copy, that of a place past the end, too. The last
        # factor tells how wide loads may be.
        image = f"({image} * {shape.groups} + group)" if shape.groups > 1 else image
        start = f"{image} * PLANE + {self._offset('at')}"
        return [
            f"start = tl.where({self.read_mask}, {start}, {self._safe_start()})",
            f"start *= {self.packing.channels}",
        ]

    def _safe_start(self) -> str:
        """Where a window lies in the copy of the first picture."""
        return "0"

    def _split(self, index: str, name: str, sizes: list[str]) -> list[str]:
        """Lines that take a flat index apart: `name_0`, `name_1`, ..."""
        rank = self.shape.rank
        if rank == 1:
            return [f"{name}_0 = {index}"]
        *_, before, last = map(factor, sizes)
        lines = [f"{name}_{rank - 1} = {index} % {last}"]
        if rank == 2:
            return [*lines, f"{name}_0 = {index} // {last}"]
        lines.append(f"{name}_1 = {index} // {last} % {before}")
        return [*lines, f"{name}_0 = {index} // ({before} * {last})"]

    def _total(self) -> list[str]:
        """Lines of a sum over K: `acc`, of channels by places."""
        loop = {AS_IT_LIES: self._tap_loop, AT_ONCE: self._flat_loop, PACKED: self._packed_loop}
        return [
            "acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)",
            *loop[self.packing.read](),
            "acc = tl.trans(acc)",
        ]

    def _lead(self, dim: int) -> int:
        """How much later a place is in the copy."""
        return self.packing.low(dim) if self.packing.read == PACKED else 0

    def _low(self, dim: int) -> str:
        low = self._lead(dim)
        return f" + {low}" if low else ""

    def _offset(self, name: str) -> str:
        """The offset in a plane of a place `name_0`, `name_1`, ..."""
        return self._flat(name, self._side)

    def _flat(self, name: str, side: str) -> str:
        """The number of a place `name_0`, `name_1`, ... among those of sizes `side_0`, ..."""
        text = f"{name}_0"
        for dim in self.dims[1:]:
            text = f"{factor(text)} * {side}_{dim} + {name}_{dim}"
        return text

    def _moves(self, tap: str) -> list[str]:
        """Lines from a tap's number to how far from the window's start it reads, by dimension."""
        lines, rest = [], tap
        for dim in reversed(self.dims):
            count = self._taps(dim)
            if dim == 0:
                lines.append(f"tap_0 = {rest}")
            elif count == "1":
                lines.append(f"tap_{dim} = {rest} * 0")
            else:
                lines.append(f"tap_{dim} = {rest} % {count}")
                rest = f"{rest} // {count}"
        return [*lines, *(f"move_{dim} = {self._move(dim)}" for dim in self.dims)]

    def _taps(self, dim: int) -> str:
        """Taps along a dimension."""
        return f"{self.shape.kernel[dim]}"

    def _move(self, dim: int) -> str:
        """How far from the window's start a tap reads."""
        gap = self.shape.dilation[dim]
        return f"tap_{dim}" if gap == 1 else f"tap_{dim} * {gap}"

    @property
    def _edges(self) -> list[int]:
        """Dimensions along which a window may reach past the picture."""
        return [dim for dim in self.dims if self.shape.padding[dim] or self.shape.after[dim]]

    @property
    def _by_bits(self) -> bool:
        """Whether the reads that lie in the picture are one integer a place."""
        return bool(self._edges) and self.shape.taps <= MASK_BITS

    def _masks(self) -> list[str]:
        """Lines of `near`: a bit for each tap whose read lies in the picture."""
        if not self._by_bits:
            return []
        shape, lines, names = self.shape, [], {}
        for dim in self._edges:
            names[dim] = f"near_{dim}"
            for tap in range(shape.kernel[dim]):
                at = f"at_{dim}" if tap == 0 else f"at_{dim} + {tap * shape.dilation[dim]}"
                bit = f"({self._within(at, f'IN_{dim}')}).to(tl.int32) << {tap}"
                lines.append(f"{names[dim]} {'=' if tap == 0 else '|='} {bit}")
        near = ""
        for dim in reversed(self.dims):
            later = shape.taps_after(dim)
            known = names.get(dim, str(2 ** shape.kernel[dim] - 1))
            if not near:
                near = known
                continue
            lines.append(f"every = {near}")
            for tap in range(shape.kernel[dim]):
                on = f"-(({known} >> {tap}) & 1)" if dim in names else "-1"
                lines.append(f"near {'=' if tap == 0 else '|='} (every & {on}) << {tap * later}")
            near = "near"
        return [*lines, f"near = tl.where(col_mask, {near}, 0)"]

    def _within(self, at: str, size: str) -> str:
        return f"({at}).to(tl.uint32) < {size}"

    def _inside(self, tap: str, lift: str, channels: str) -> list[str]:
        """Conditions that the read of a tap lies in the picture, `lift` turning what is one a place
        and `channels` what is one a step of K into a tile."""
        if self._by_bits:
            return [f"(((near{lift} >> {tap}{channels}) & 1) != 0)"]
        return [f"{self.read_mask}{lift}"] + [
            f"({self._within(f'at_{dim}{lift} + move_{dim}{channels}', f'IN_{dim}')})"
            for dim in self._edges
        ]

    def _tap_loop(self) -> list[str]:
        steps = self.packing.steps
        body = [*self._block(steps), *self._moves("window"), *self._number()]
        body += [*self._read_as_it_lies(), *self._weights()]
        return [f"for turn in range({self._turns(steps)}):", *(f"    {line}" for line in body)]

    def _read_as_it_lies(self) -> list[str]:
        """Lines of a step's elements of the picture itself."""
        ragged = self.shape.inside % self.schedule["BLOCK_K"] != 0
        mask = f" & (ks < {self.shape.inside})[None, :]" if ragged else ""
        return [
            f"inside = {' & '.join(self._inside('window', '', ''))}",
            f"x_ptrs = x_ptr + (start + ({self._offset('move')}))",
            "x_ptrs = x_ptrs[:, None] + ks[None, :].to(INDEX) * PLANE",
            f"x = tl.load(x_ptrs, mask=inside[:, None]{mask}, other=0.0)",
        ]

    def _turns(self, steps: int) -> str:
        blocks = str(self.packing.blocks)
        return blocks if steps == 1 else f"{blocks} * {steps}"

    def _block(self, steps: int) -> list[str]:
        """Lines of a turn's block of K and of `ks` in it."""
        if steps == 1:
            return ["tap = turn", "window = turn", "ks = tl.arange(0, BLOCK_K)"]
        return [
            f"tap = turn // {steps}",
            "window = tap",
            f"ks = turn % {steps} * BLOCK_K + tl.arange(0, BLOCK_K)",
        ]

    def _number(self) -> list[str]:
        """Lines of a tap's number among the blocks of the weights, where that is not its own."""
        return []

    def _flat_loop(self) -> list[str]:
        shape = self.shape
        depth = shape.inside * shape.taps
        conditions = [f"(ks < {depth})[None, :]"] if depth % self.schedule["BLOCK_K"] else []
        body = [
            "ks = turn * BLOCK_K + tl.arange(0, BLOCK_K)",
            f"window = ks % {shape.taps}",
            *self._moves("window"),
            f"inside = {' & '.join(conditions + self._inside('window', '[:, None]', '[None, :]'))}",
            f"offset = (ks // {shape.taps}).to(INDEX) * PLANE + {self._offset('move')}",
            "x = tl.load(x_ptr + (start[:, None] + offset[None, :]), mask=inside, other=0.0)",
            *self._weights(block=False),
        ]
        return [f"for turn in range({self.packing.steps}):", *(f"    {line}" for line in body)]

    def _packed_loop(self) -> list[str]:
        steps = self.packing.steps
        body = [*self._block(steps), *self._packed_moves(), *self._number()]
        body += [*self._packed_read(), *self._weights()]
        return [f"for turn in range({self._turns(steps)}):", *(f"    {line}" for line in body)]

    def _packed_read(self) -> list[str]:
        """Lines of a step's elements of the copy."""
        packing, mask = self.packing, ""
        if packing.run % self.schedule["BLOCK_K"]:
            mask = f", mask=(ks < {packing.run})[None, :], other=0.0"
        return [
            f"x_ptrs = x_ptr + (start + ({self._offset('move')}) * {packing.channels})",
            f"x = tl.load(x_ptrs[:, None] + ks[None, :]{mask})",
        ]

    def _packed_moves(self) -> list[str]:
        """Lines of how far a block of K reads from a window's start: a block has the taps of the
        last dimension where they lie one behind the other."""
        shape = self.shape
        if not self.packing.joined:
            return self._moves("window")
        lines, rest = [], "window"
        for dim in reversed(self.dims[:-1]):
            step = "" if shape.dilation[dim] == 1 else f" * {shape.dilation[dim]}"
            if dim == 0:
                lines.append(f"move_0 = {rest}{step}")
            else:
                lines.append(f"move_{dim} = {rest} % {shape.kernel[dim]}{step}")
                rest = f"{rest} // {shape.kernel[dim]}"
        return [*lines, f"move_{shape.rank - 1} = 0"]

    def _weights(self, block: bool = True) -> list[str]:
        row = "tap * M + rows" if block and self.packing.blocks > 1 else "rows"
        return [
            f"w_ptrs = weight_ptr + ({row}) * {self.packing.depth}",
            "w = tl.load(w_ptrs[None, :] + ks[:, None])",
            *(["if TF32:", "    x = to_tf32(x)"] if self.rounds else []),
            *self._dot("acc"),
        ]

    def _dot(self, acc: str) -> list[str]:
        if self.spec.dtype != "float32":
            return [f"{acc} = tl.dot(x, w, {acc})"]
        exact = "ieee" if self.schedule.get("IEEE") else "tf32x3"
        return [
            "if TF32:",
            f'    {acc} = tl.dot(x, w, {acc}, input_precision="tf32")',
            "else:",
            f'    {acc} = tl.dot(x, w, {acc}, input_precision="{exact}")',
        ]

    def _end(self) -> list[str]:
        lines = []
        if self.spec.bias:
            lines.append("acc += tl.load(bias_ptr + rows)[:, None].to(tl.float32)")
        lines.append("batch = batch.to(tl.int64)")
        if self._end_reads("tile_mask"):
            lines.append("tile_mask = row_mask[:, None] & col_mask[None, :]")
        if self._end_reads("tile"):
            lines.append("tile = (batch[None, :] * M + rows[:, None]) * N + cols[None, :]")
        lines += self.spec.epilogue
        if self.spec.store:
            stored = "acc.to(out_ptr.dtype.element_ty)"
            lines.append(f"tl.store(out_ptr + tile, {stored}, mask=tile_mask)")
        return lines

    def _end_reads(self, name: str) -> bool:
        """Whether what follows the sums mentions a name."""
        return self.spec.store or bool(re.search(rf"\b{name}\b", "\n".join(self.spec.epilogue)))

    def _stored(self) -> str:
        """Places of a picture that programs count, as Python."""
        pooling = self.spec.pooling
        if pooling is None:
            return " * ".join(map(factor, self.spec.out_sizes))
        return f"{' * '.join(map(factor, pooling.counts))} * {math.prod(pooling.taps)}"

    def _programs(self) -> int:
        """Programs of each tile."""
        return 1

    def _more_places(self) -> Sequence[str]:
        """Further numbers that an index may reach: of what is not stored, the places."""
        return () if self.spec.store else (f"{factor(self.spec.batch)} * {self._stored()}",)

    def launch(self) -> list[str]:
        spec, shape, schedule = self.spec, self.shape, self.schedule
        x = spec.called("picture") if self.packing.read == PACKED else spec.x
        places = self._stored()
        tiles = -(-shape.outside // schedule["BLOCK_M"]) * self._programs()
        if schedule.get("APART"):
            grid = f"{factor(spec.batch)} * triton.cdiv({places}, {schedule['BLOCK_N']}) * {tiles},"
        else:
            grid = f"triton.cdiv({factor(spec.batch)} * {places}, {schedule['BLOCK_N']}) * {tiles},"
        if shape.groups > 1:
            grid += f" {shape.groups}"
        arguments = [
            x, spec.called("weight"), *([spec.bias] if spec.bias else []), spec.out,
            *(value for _, value in spec.extras), spec.batch,
        ]  # fmt: skip
        options = spec.sizes
        options += [f"POOL_{dim}={size}" for dim, size in enumerate(self._pooled)]
        counts = (f"{x}.numel()", f"{spec.out}.numel()", *self._more_places())
        options.append(index_option(*counts))
        if spec.dtype == "float32":
            options.append(f"TF32={spec.rounding}")
        names = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"]
        options += [f"{name}={schedule[name]}" for name in names]
        return call_lines(spec.name, grid, arguments, options)
