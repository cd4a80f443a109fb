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

from collections.abc import Mapping

from agentkernel.compiler.convolutions.packing import (
    AS_IT_LIES,
    AT_ONCE,
    PACKED,
    Packing,
    pack_picture,
    pack_weights,
)
from agentkernel.compiler.convolutions.spec import ConvolutionSpec
from agentkernel.compiler.products.spec import KernelText, call_lines, function

INT32_LIMIT = 2**31 - 2**16
"""From here on elements are counted in 64 bits: a tile runs past the last one."""
MASK_BITS = 31
"""Taps whose reads inside of the picture one integer can tell."""

WEAVES = (2, 4, 8)
"""Strides whose phases can be joined in registers."""
LEAST_ROWS = 16
"""Rows of the least tile that is multiplied."""


def emit_implicit(spec: ConvolutionSpec, schedule: Mapping[str, int]) -> KernelText:
    """The kernels under `schedule`, with the wrapper's lines: BLOCK_N places x BLOCK_M channels a
    tile."""
    text = _Implicit(spec, schedule)
    weights = pack_weights(spec, text.packing)
    kernels, sources, lines = [*weights.kernels], [weights.source], [*weights.launch]
    if text.packing.read == PACKED:
        picture = pack_picture(spec, text.packing)
        kernels += picture.kernels
        sources += [picture.source]
        lines += picture.launch
    sources.append(text.source())
    helpers = frozenset(("to_tf32",)) if spec.dtype == "float32" else frozenset[str]()
    return KernelText(
        "\n\n\n".join(sources), (*kernels, spec.name), (*lines, *text.launch()), helpers
    )


class _Implicit:
    def __init__(self, spec: ConvolutionSpec, schedule: Mapping[str, int]) -> None:
        self.spec, self.schedule, self.shape = spec, schedule, spec.geometry
        self.dims = range(self.shape.rank)
        self.packing = Packing(spec.geometry, schedule["READ"], schedule["BLOCK_K"], spec.dtype)

    @property
    def woven(self) -> int:
        """Phases of the last dimension that a program takes, so that neighbours are stored
        together: all of them where a tile can hold them side by side."""
        step = self.shape.stride[-1]
        fits = step in WEAVES and self.schedule["BLOCK_N"] >= LEAST_ROWS * step
        return step if self.shape.transposed and fits else 1

    @property
    def rounds(self) -> bool:
        """Whether elements of X are rounded as they are read."""
        return self.spec.dtype == "float32" and self.packing.read != PACKED

    def source(self) -> str:
        spec, packed = self.spec, self.packing.read == PACKED
        fixed = [f"{side}_{dim}" for side in ("IN", "OUT") for dim in self.dims]
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
            *(self._phases() if self.shape.transposed else self._loop()),
            "",
            *self._end(),
        ]
        return function(spec.name, signature, lines)

    def _title(self) -> str:
        kind = "Transposed convolution" if self.shape.transposed else "Convolution"
        how = {
            AS_IT_LIES: "tap by tap",
            AT_ONCE: "taps and channels at once",
            PACKED: "of a copy with channels last",
        }
        return f"{kind}, {how[self.packing.read]}, with its epilogue."

    def _sizes(self) -> list[str]:
        shape = self.shape
        area = " * ".join(f"OUT_{dim}" for dim in self.dims)
        lines = [f"M: tl.constexpr = {shape.outside * shape.groups}", f"N: tl.constexpr = {area}"]
        if self.packing.read == PACKED:
            lines += [f"WIDE_{dim}: tl.constexpr = {size}" for dim, size in self._wide()]
        plane = " * ".join(f"{self._side}_{dim}" for dim in self.dims)
        lines.append(f"PLANE: tl.constexpr = {plane}")
        if shape.transposed:
            lines += [
                f"STEPS_{dim}: tl.constexpr = (OUT_{dim} + {shape.stride[dim] - 1})"
                f" // {shape.stride[dim]}"
                for dim in self.dims
            ]
        return lines

    def _wide(self) -> list[tuple[int, str]]:
        return [(dim, self.packing.width(dim)) for dim in self.dims]

    @property
    def _side(self) -> str:
        """What the sizes of the picture that is read are called."""
        return "WIDE" if self.packing.read == PACKED else "IN"

    def _places(self) -> list[str]:
        """Lines of the tile's channels and places, and where each place's window begins."""
        shape = self.shape
        tiles = -(-shape.outside // self.schedule["BLOCK_M"])
        apart = shape.phases // self.woven
        lines = ["program = tl.program_id(0)"]
        if apart > 1:
            lines += [f"phase = program % {apart}", f"program //= {apart}"]
        lines += [
            f"tile_m = program % {tiles}",
            f"tile_n = program // {tiles}",
            "channel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)",
            f"row_mask = channel < {shape.outside}",
            f"channel = tl.minimum(channel, {shape.outside - 1})",
        ]
        if shape.groups > 1:
            lines += ["group = tl.program_id(1)", f"rows = group * {shape.outside} + channel"]
        else:
            lines += ["rows = channel"]
        if shape.transposed:
            return [*lines, *self._shifts(), *self._woven_places(), *self._steps()]
        return [
            *lines,
            "place = tile_n.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)",
            "col_mask = place < batches * N",
            "batch = place // N",
            "cols = (place % N).to(tl.int32)",
            *self._split("cols", "out", [f"OUT_{dim}" for dim in self.dims]),
            *self._window_starts(),
            *self._start_lines("batch", "col_mask"),
        ]

    def _start_lines(self, image: str, mask: str) -> list[str]:
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
            f"start = tl.where({mask}, {start}, {self._safe_start()})",
            f"start *= {self.packing.channels}",
        ]

    def _safe_start(self) -> str:
        """Where a window lies in the copy of the first picture."""
        if not self.shape.transposed:
            return "0"
        text = str(self.packing.low(0))
        for dim in self.dims[1:]:
            text = f"({text}) * WIDE_{dim} + {self.packing.low(dim)}"
        return text

    def _split(self, index: str, name: str, sizes: list[str]) -> list[str]:
        """Lines that take a flat index apart: `name_0`, `name_1`, ..."""
        rank = self.shape.rank
        if rank == 1:
            return [f"{name}_0 = {index}"]
        lines = [f"{name}_{rank - 1} = {index} % ({sizes[-1]})"]
        if rank == 2:
            return [*lines, f"{name}_0 = {index} // ({sizes[1]})"]
        lines.append(f"{name}_1 = {index} // ({sizes[2]}) % ({sizes[1]})")
        return [*lines, f"{name}_0 = {index} // (({sizes[1]}) * ({sizes[2]}))"]

    @property
    def _apart(self) -> list[int]:
        """Dimensions whose phases programs have apart."""
        return [dim for dim in self.dims if self.woven == 1 or dim != self.shape.rank - 1]

    def _shifts(self) -> list[str]:
        """Lines of the phase of a program: it has the places `step * stride + shift`, which tap
        `first` reaches, and each `stride`-th from there on."""
        shape, rest = self.shape, "phase"
        lines: list[str] = []
        for dim in reversed(self._apart):
            if shape.stride[dim] == 1:
                lines.append(f"shift_{dim} = 0")
                continue
            lines.append(f"shift_{dim} = {rest} % {shape.stride[dim]}")
            rest = f"{rest} // {shape.stride[dim]}"
        for dim in self._apart:
            s, p, k = shape.stride[dim], shape.padding[dim], shape.kernel[dim]
            lines += [
                f"first_{dim} = (shift_{dim} + {p}) % {s}",
                f"taps_{dim} = ({k + s - 1} - first_{dim}) // {s}",
            ]
        return lines

    def _woven_places(self) -> list[str]:
        """Lines of the places that are stored, those of the last dimension's phases in turn."""
        shape = self.shape
        sizes = [f"STEPS_{dim}" for dim in self.dims]
        sizes[-1] += f" * {self.woven}" if self.woven > 1 else ""
        lines = [
            f"COUNT: tl.constexpr = {' * '.join(sizes)}",
            "place = tile_n.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)",
            "batch = place // COUNT",
            "cols = (place % COUNT).to(tl.int32)",
            *self._split("cols", "out", sizes),
            *(f"out_{dim} = out_{dim} * {shape.stride[dim]} + shift_{dim}" for dim in self._apart),
            "col_mask = place < batches * COUNT",
            *(f"col_mask &= out_{dim} < OUT_{dim}" for dim in self.dims),
        ]
        flat = "out_0"
        for dim in self.dims[1:]:
            flat = f"({flat}) * OUT_{dim} + out_{dim}"
        return [*lines, f"cols = {flat}"]

    def _steps(self) -> list[str]:
        """Lines of what is read: a step of each phase."""
        count = " * ".join(f"STEPS_{dim}" for dim in self.dims)
        block = f"BLOCK_N // {self.woven}" if self.woven > 1 else "BLOCK_N"
        return [
            f"step = tile_n.to(INDEX) * ({block}) + tl.arange(0, {block})",
            f"step_mask = step < batches * ({count})",
            f"picture = step // ({count})",
            f"step = (step % ({count})).to(tl.int32)",
            *self._split("step", "step", [f"STEPS_{dim}" for dim in self.dims]),
            *(
                f"at_{dim} = step_{dim} + (shift_{dim} + {self.shape.padding[dim]})"
                f" // {self.shape.stride[dim]}{self._low(dim)}"
                for dim in self._apart
            ),
        ]

    def _phases(self) -> list[str]:
        """Lines of the sum of each phase that the program has, and of all together."""
        if self.woven == 1:
            return [*self._start_lines("picture", "step_mask"), *self._loop()]
        last, lines = self.shape.rank - 1, []
        s, p, k = (item[-1] for item in (self.shape.stride, self.shape.padding, self.shape.kernel))
        for shift in range(s):
            first = (shift + p) % s
            lines += [
                f"at_{last} = step_{last} + {(shift + p) // s}{self._low(last)}",
                f"first_{last} = {first}",
                f"taps_{last}: tl.constexpr = {(k + s - 1 - first) // s}",
                *self._start_lines("picture", "step_mask"),
                *self._loop(),
                f"acc_{shift} = acc",
            ]
            lines = [line.replace(f"taps_{last}", f"taps_{last}_{shift}") for line in lines]
        joined = _joined([f"acc_{shift}" for shift in range(s)])
        pairs = s.bit_length() - 1
        order = ", ".join(map(str, (1, 0, *range(2, 2 + pairs))))
        return [
            *lines,
            f"acc = tl.reshape(tl.permute({joined}, ({order})), (BLOCK_M, BLOCK_N))",
        ]

    def _loop(self) -> list[str]:
        """Lines of a sum over K: `acc`, of channels by places where no phases are woven."""
        loop = {AS_IT_LIES: self._tap_loop, AT_ONCE: self._flat_loop, PACKED: self._packed_loop}
        rows = "BLOCK_N" if self.woven == 1 else f"BLOCK_N // {self.woven}"
        return [
            f"acc = tl.zeros(({rows}, BLOCK_M), dtype=tl.float32)",
            *loop[self.packing.read](),
            *(["acc = tl.trans(acc)"] if self.woven == 1 else []),
        ]

    def _low(self, dim: int) -> str:
        """How much later a place is in the copy."""
        low = self.packing.low(dim) if self.packing.read == PACKED else 0
        return f" + {low}" if low else ""

    def _window_starts(self) -> list[str]:
        shape = self.shape
        return [
            f"at_{dim} = out_{dim} * {shape.stride[dim]} - {shape.padding[dim]}{self._low(dim)}"
            for dim in self.dims
        ]

    def _offset(self, name: str) -> str:
        """The offset in a plane of a place `name_0`, `name_1`, ..."""
        text = f"{name}_0"
        for dim in self.dims[1:]:
            text = f"({text}) * {self._side}_{dim} + {name}_{dim}"
        return text

    def _moves(self, tap: str) -> list[str]:
        """Lines from a tap's number to how far from the window's start it reads, by dimension."""
        shape, lines, rest = self.shape, [], tap
        for dim in reversed(self.dims):
            count = f"taps_{dim}" if self.shape.transposed else f"{shape.kernel[dim]}"
            if dim == 0:
                lines.append(f"tap_0 = {rest}")
            elif count == "1":
                lines.append(f"tap_{dim} = {rest} * 0")
            else:
                lines.append(f"tap_{dim} = {rest} % {count}")
                rest = f"{rest} // {count}"
        for dim in self.dims:
            if shape.transposed:
                lines.append(f"move_{dim} = -tap_{dim}")
            elif shape.dilation[dim] == 1:
                lines.append(f"move_{dim} = tap_{dim}")
            else:
                lines.append(f"move_{dim} = tap_{dim} * {shape.dilation[dim]}")
        return lines

    @property
    def _edges(self) -> list[int]:
        """Dimensions along which a window may reach past the picture."""
        shape = self.shape
        return [
            dim for dim in self.dims if shape.transposed or shape.padding[dim] or shape.after[dim]
        ]

    @property
    def _by_bits(self) -> bool:
        """Whether the reads that lie in the picture are one integer a place."""
        return bool(self._edges) and not self.shape.transposed and self.shape.taps <= MASK_BITS

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
        mask = "step_mask" if self.shape.transposed else "col_mask"
        return [f"{mask}{lift}"] + [
            f"({self._within(f'at_{dim}{lift} + move_{dim}{channels}', f'IN_{dim}')})"
            for dim in self._edges
        ]

    def _tap_loop(self) -> list[str]:
        shape, steps = self.shape, self.packing.steps
        body = [*self._block(steps), *self._moves("tap"), *self._tap_number()]
        ragged = shape.inside % self.schedule["BLOCK_K"] != 0
        body += [
            f"inside = {' & '.join(self._inside('window', '', ''))}",
            f"x_ptrs = x_ptr + (start + ({self._offset('move')}))",
            "x = tl.load(x_ptrs[:, None] + ks[None, :] * PLANE, mask=inside[:, None]"
            + (f" & (ks < {shape.inside})[None, :]" if ragged else "")
            + ", other=0.0)",
            *self._weights(),
        ]
        return [f"for turn in range({self._turns(steps)}):", *(f"    {line}" for line in body)]

    def _turns(self, steps: int) -> str:
        blocks = str(self.packing.blocks)
        if self.shape.transposed:
            blocks = " * ".join(f"taps_{dim}" for dim in self.dims)
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

    def _tap_number(self) -> list[str]:
        """The line of a phase's tap's number in the whole window."""
        if not self.shape.transposed:
            return []
        shape = self.shape
        number = f"first_0 + tap_0 * {shape.stride[0]}"
        for dim in self.dims[1:]:
            own = f"first_{dim} + tap_{dim} * {shape.stride[dim]}"
            number = f"({number}) * {shape.kernel[dim]} + {own}"
        return [f"tap = {number}"]

    def _flat_loop(self) -> list[str]:
        shape = self.shape
        depth = shape.inside * shape.taps
        conditions = [f"(ks < {depth})[None, :]"] if depth % self.schedule["BLOCK_K"] else []
        body = [
            "ks = turn * BLOCK_K + tl.arange(0, BLOCK_K)",
            f"window = ks % {shape.taps}",
            *self._moves("window"),
            f"inside = {' & '.join(conditions + self._inside('window', '[:, None]', '[None, :]'))}",
            f"offset = ks // {shape.taps} * PLANE + {self._offset('move')}",
            "x = tl.load(x_ptr + (start[:, None] + offset[None, :]), mask=inside, other=0.0)",
            *self._weights(block=False),
        ]
        return [f"for turn in range({self.packing.steps}):", *(f"    {line}" for line in body)]

    def _packed_loop(self) -> list[str]:
        packing, steps = self.packing, self.packing.steps
        body = [*self._block(steps), *self._packed_moves(), *self._tap_number()]
        mask = ""
        if packing.run % self.schedule["BLOCK_K"]:
            mask = f", mask=(ks < {packing.run})[None, :], other=0.0"
        body += [
            f"x_ptrs = x_ptr + (start + ({self._offset('move')}) * {packing.channels})",
            f"x = tl.load(x_ptrs[:, None] + ks[None, :]{mask})",
            *self._weights(),
        ]
        return [f"for turn in range({self._turns(steps)}):", *(f"    {line}" for line in body)]

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
        lines = [
            f"w_ptrs = weight_ptr + ({row}) * {self.packing.depth}",
            "w = tl.load(w_ptrs[None, :] + ks[:, None])",
        ]
        if self.spec.dtype != "float32":
            return [*lines, "acc = tl.dot(x, w, acc)"]
        return [
            *lines,
            "if TF32:",
            *(["    x = to_tf32(x)"] if self.rounds else []),
            '    acc = tl.dot(x, w, acc, input_precision="tf32")',
            "else:",
            '    acc = tl.dot(x, w, acc, input_precision="tf32x3")',
        ]

    def _end(self) -> list[str]:
        lines = []
        if self.spec.bias:
            lines.append("acc += tl.load(bias_ptr + rows)[:, None].to(tl.float32)")
        return [
            *lines,
            "tile_mask = row_mask[:, None] & col_mask[None, :]",
            "batch = batch.to(tl.int64)",
            "tile = (batch[None, :] * M + rows[:, None]) * N + cols[None, :]",
            *self.spec.epilogue,
            "tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)",
        ]

    def launch(self) -> list[str]:
        spec, shape, schedule = self.spec, self.shape, self.schedule
        x = f"{spec.name}_picture" if self.packing.read == PACKED else spec.x
        places = " * ".join(
            f"triton.cdiv({size}, {stride})" if self.shape.transposed else size
            for size, stride in zip(spec.out_sizes, shape.stride, strict=True)
        )
        places += f" * {self.woven}" if self.woven > 1 else ""
        tiles = -(-shape.outside // schedule["BLOCK_M"]) * shape.phases // self.woven
        grid = f"triton.cdiv({spec.batch} * {places}, {schedule['BLOCK_N']}) * {tiles},"
        if shape.groups > 1:
            grid += f" {shape.groups}"
        arguments = [
            x, f"{spec.name}_weight", *([spec.bias] if spec.bias else []), spec.out,
            *(value for _, value in spec.extras), spec.batch,
        ]  # fmt: skip
        options = spec.sizes
        options.append(
            f"INDEX=tl.int64 if max({x}.numel(), {spec.out}.numel()) > {INT32_LIMIT} else tl.int32"
        )
        if spec.dtype == "float32":
            options.append(f"TF32={spec.rounding}")
        names = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"]
        options += [f"{name}={schedule[name]}" for name in names]
        return call_lines(spec.name, grid, arguments, options)


def _joined(sums: list[str]) -> str:
    """Sums as one tensor whose last dimensions count them."""
    if len(sums) == 1:
        return sums[0]
    return f"tl.join({_joined(sums[::2])}, {_joined(sums[1::2])})"
