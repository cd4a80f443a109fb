"""The Triton text of a matrix product with an epilogue, split-K and transposing copies included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.products import descriptors
from agentkernel.compiler.products.passes import (
    reduce_kernel,
    reduce_launch,
    transpose_kernel,
    transpose_launch,
)
from agentkernel.compiler.products.planes import (
    PART_HELPERS,
    PLANE_HELPERS,
    Splits,
    part_step,
    parts_end,
    plane_lines,
    plane_pointers,
    shared_splits,
)
from agentkernel.compiler.products.schedules import SHORT_K, GemmSchedule, epilogue_columns
from agentkernel.compiler.products.spec import (
    TILE,
    GemmSpec,
    KernelText,
    batch_arguments,
    batch_count,
    batch_index,
    batch_offset,
    batch_parameters,
    call_lines,
    epilogue_lines,
    function,
    masks,
    outs,
    pair_lines,
    parts,
    read_lines,
    share_ends,
    share_lines,
    strides,
    tile_offsets,
)
from agentkernel.compiler.products.triangles import step_lines
from agentkernel.domain.verdict import Precision


def emit_gemm(spec: GemmSpec, schedule: GemmSchedule, splits: Splits | None = None) -> KernelText:
    """The kernels of a product under a schedule. What is in `splits` is not split again, and what
    this product splits is added to it.

    fp32 under "strict" multiplies in three TF32 products (`tf32x3`), whose partial sums Triton adds
    in fp32 outside the tensor core: error 2.4e-7 at K = 4096 where cuBLAS fp32 has 1.1e-6, and it
    grows with the root of K / BLOCK_K. Finite operands up to 3.39e38 stay finite when split; the
    rests that splitting leaves of operands under 2**-114 are subnormal and may be lost. With PLANES
    1 operands are split into fp16 planes in a pass before, which multiply at twice the rate, with 2
    into bf16 parts in the product's loop (planes.py), which take B as it lies. Products of at most
    `SHORT_K` terms are fp32's own.
    """
    pieces: list[str] = []
    kernels: list[str] = []
    launch: list[str] = []
    planes: list[str] = []
    if schedule.get("PLANES") == 1:
        planes, splitting, launch = shared_splits(spec, {} if splits is None else splits)
        pieces += [splitting] if splitting else []
        kernels += [f"{spec.name}_split"] if splitting else []
    layouts = {"a": spec.a_layout, **dict.fromkeys((*spec.given, "b"), spec.b_layout)}
    tensors = spec.tensors
    for operand in list(tensors):
        turned = "TRANSPOSE_A" if operand == "a" else "TRANSPOSE_B"
        if layouts[operand] != "k" and schedule.get(turned):
            if not kernels:
                pieces.append(transpose_kernel(f"{spec.name}_transpose"))
                kernels.append(f"{spec.name}_transpose")
            copied = f"{spec.name}_{operand}"
            launch += transpose_launch(spec, operand, tensors[operand], copied)
            tensors[operand], layouts[operand] = copied, "k"
    kernel = _Kernel(spec, schedule, layouts["a"] == "k", layouts["b"] == "k")
    launch += kernel.launch(list(tensors.values()), planes)
    pieces.append(kernel.source())
    kernels.append(kernel.name)
    if kernel.split > 1:
        pieces.append(reduce_kernel(spec))
        kernels.append(f"{spec.name}_reduce")
        launch += reduce_launch(spec, kernel.split)
    helpers = {1: PLANE_HELPERS, 2: PART_HELPERS}.get(schedule.get("PLANES", 0), frozenset())
    helpers |= descriptors.HELPERS if kernel.described else frozenset()
    names = tuple(dict.fromkeys(kernels))
    return KernelText("\n\n\n".join(pieces), names, tuple(launch), helpers)


EXACT_K = "16"
"""The step of K where planes do not hold: what it keeps in registers must not make the rest spill
(odd sizes need an address a number), and it divides every BLOCK_K."""


@dataclass(frozen=True)
class _Kernel:
    """The product itself: one output tile a program, or one slice of K of it."""

    spec: GemmSpec
    schedule: GemmSchedule
    a_rows: bool
    """A lies with K inside."""
    b_rows: bool
    """B lies with K inside."""

    @property
    def planes(self) -> int:
        """1: fp16 planes made before are multiplied; 2: bf16 parts made here."""
        return self.schedule.get("PLANES", 0)

    @property
    def split(self) -> int:
        return self.schedule.get("SPLIT_K", 1)

    @property
    def sliced(self) -> bool:
        """Whether a program has steps of K of its own. One of several slices takes all of its own,
        triangular or not."""
        return self.split > 1 or bool(self.spec.triangles)

    @property
    def described(self) -> bool:
        """Whether TMA loads the operands where it may: of what stays, and of one matrix alone."""
        return bool(self.schedule.get("DESCRIPTORS")) and self.persists and not self._counts_batches

    @property
    def _joined(self) -> bool:
        """Whether what TMA loads of two weights is multiplied as one tile."""
        columns = self.schedule["BLOCK_N"]
        fit = descriptors.side_by_side(self.spec, columns, k_inside=self.b_rows)
        return self.described and fit

    @property
    def described_out(self) -> bool:
        """Whether TMA stores the result, too, where it may: of several, any."""
        if self.spec.shares:
            return any(replace(self, spec=spec).described_out for spec in parts(self.spec))
        wanted = self.described and self.schedule["DESCRIPTORS"] == 2 and self.spec.place == TILE
        return wanted and self.spec.store and self.spec.out_is_float

    @property
    def by_parts_of_operands(self) -> bool:
        """Whether operands are multiplied in parts, where a product has terms enough."""
        spec = self.spec
        return (spec.dtype, spec.precision, spec.vendor) == ("float32", "strict", "nvidia")

    @property
    def may_be_short(self) -> bool:
        """Whether K is free and the launch says if it is short."""
        return self.by_parts_of_operands and not self.spec.k.isdigit()

    @property
    def is_short(self) -> bool:
        """Whether K is fixed, and short."""
        return self.by_parts_of_operands and self.spec.k.isdigit() and int(self.spec.k) <= SHORT_K

    @property
    def name(self) -> str:
        return f"{self.spec.name}_partial" if self.split > 1 else self.spec.name

    def source(self) -> str:
        extras = [] if self.split > 1 else [name for name, _ in self.spec.extras]
        blocks = [*self._fixed, "EVEN_K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
        blocks += ["SHORT"] if self.may_be_short else []
        blocks += ["SPLIT_K"] if self.split > 1 else []
        blocks += ["PROGRAMS"] if self.persists else []
        blocks += ["DESCRIBED"] if self.described else []
        blocks += ["DESCRIBED_OUT"] if self.described_out else []
        signature = [
            "a_ptr", *(f"{weight}_ptr" for weight in self.spec.given), *outs(self.spec), *extras,
            *self._free, "stride_a", *strides(self.spec),
            *batch_parameters(self.spec), *(["batches"] if self._counts_batches else ()),
            *(plane_pointers(self.spec) if self.planes == 1 else ()),
            *(f"{block}: tl.constexpr" for block in blocks),
        ]  # fmt: skip
        lines = [
            f'"""{self._title()}"""',
            "tiles_m = tl.cdiv(M, BLOCK_M)",
            *(self._in_turn() if self._turns else self._body()),
        ]
        return function(self.name, signature, lines)

    def _body(self, *, goes_on: bool = False) -> list[str]:
        """Lines behind the number of rows of tiles; `goes_on`: A's descriptor is there already."""
        columns = self.spec.columns
        return [
            f"tiles_n = {' + '.join(f'tl.cdiv({n}, BLOCK_N)' for n in columns)}",
            *((f"tiles_n *= {len(self.spec.given)}",) if self._alike else ()),
            *(self._operand_boxes(goes_on) if self.described else ()),
            *(descriptors.result_box(self._halves) if self.described_out else ()),
            *(self._tiles() if self.persists else ("program = tl.program_id(0)", *self._tile())),
        ]

    def _operand_boxes(self, goes_on: bool) -> list[str]:
        return descriptors.operand_boxes(
            self.spec, self._k_inside, weights_only=goes_on, joined=self._joined
        )

    def _tile(self) -> list[str]:
        """Lines of one tile, from its place to its store."""
        return [
            *self._program(),
            "",
            *self._sums(),
            *(self._by_planes() if self.planes else self._by_operands()),
            "",
            *self._end(),
        ]

    def _sums(self) -> list[str]:
        """Lines of the sums before the first step."""
        zeros = [
            f"{acc} = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)" for acc in self.spec.sums
        ]
        wide = "acc = tl.zeros((BLOCK_M, 2 * BLOCK_N), dtype=tl.float32)"
        return _either([wide], zeros) if self._joined else zeros

    @property
    def _turns(self) -> bool:
        """Whether the tiles of several weights come one weight after the other."""
        return self.persists and bool(self.spec.shares)

    def _in_turn(self) -> list[str]:
        """Each weight's tiles as a loop of its own, with its own descriptors and epilogue alone in
        registers; a program goes on where tiles would follow each other in one loop."""
        lines = ["begin = tl.program_id(0)"]
        for index, spec in enumerate(parts(self.spec)):
            one = replace(self, spec=spec)
            lines += [
                "",
                f"b_ptr = b_{index}_ptr",
                f"stride_b = stride_b_{index}",
                *((f"out_ptr = out_{index}_ptr",) if index else ()),
                *((f"N = N_{index}",) if not self._alike else ()),
                *one._body(goes_on=index > 0),
                "begin = (begin + PROGRAMS - tiles_m * tiles_n % PROGRAMS) % PROGRAMS",
            ]
        return lines

    @property
    def persists(self) -> bool:
        """Whether as many programs as fit at once take the tiles in turn."""
        return "PERSIST" in self.schedule

    @property
    def _counts_batches(self) -> bool:
        return self.persists and bool(self.spec.batch_dims)

    def _tiles(self) -> list[str]:
        """Tiles one after the other, as one loop with that over K: the loads of the next tile are
        on their way while this one ends. Not where a tile may have no step of K: one loop for both
        has to have one."""
        flatten = "" if self.spec.triangles else ", flatten=True"
        tiles = "tiles_m * tiles_n * batches" if self._counts_batches else "tiles_m * tiles_n"
        begin = "begin" if self.spec.is_part else "tl.program_id(0)"
        return [
            f"for turn in tl.range({begin}, {tiles}, PROGRAMS{flatten}):",
            "    program = turn",
            *(f"    {line}" if line else "" for line in self._tile()),
        ]

    def _title(self) -> str:
        a = "A[M, K]" if self.a_rows else "A[K, M]^T"
        b = "B[N, K]^T" if self.b_rows else "B[K, N]"
        if self.split > 1:
            return f"partial[split, M, N] = {a} @ {b} over one of SPLIT_K slices of K."
        b = f"({', '.join((b, *self.spec.weights[1:]))})" if self.spec.gates else b
        b = f"each of {len(self.spec.given)} {b}" if self.spec.shares else b
        tile = "PROGRAMS tiles at once" if self.persists else "one tile a program"
        return f"C[M, N] = {a} @ {b} and its epilogue, {tile}."

    def _program(self) -> list[str]:
        lines = [
            *batch_index(self.spec, "tiles_m * tiles_n"),
            "# Tiles are walked in groups of GROUP_M rows, so that what they share stays in L2.",
            "group_tiles = GROUP_M * tiles_n",
            "first_m = program // group_tiles * GROUP_M",
            "group_rows = tl.minimum(tiles_m - first_m, GROUP_M)",
            "tile_m = first_m + program % group_tiles % group_rows",
            "tile_n = program % group_tiles // group_rows",
            *(share_lines(self.spec, planes=self.planes == 1) if self.spec.shares else ()),
            *(step_lines(self.spec.triangles) if self.split == 1 and self.sliced else ()),
            "",
            "rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)",
            "cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)",
            "ks = tl.arange(0, BLOCK_K)",
        ]
        if self.split > 1:
            lines += [
                "split = tl.program_id(1)",
                "slice_length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K",
                "slice_start = split * slice_length",
                "slice_end = tl.minimum(slice_start + slice_length, K)",
            ]
        return [*lines, *(["ks += slice_start"] if self.sliced else [])]

    def _pointers(self, exact: bool = False) -> list[str]:
        """Lines of the operands' addresses; `exact`: for the loop where planes do not hold."""
        lines = ["# Rows and columns past the edge wrap around; what they yield is never stored."]
        lines += ["a_rows = (rows % M).to(tl.int64)", "b_cols = (cols % N).to(tl.int64)"]
        if self.spec.batch_dims:
            lines += [f"a_matrix = a_ptr + {batch_offset(self.spec, 'a')}"]
            offset = batch_offset(self.spec, "b")
            lines += [f"{weight}_matrix = {weight}_ptr + {offset}" for weight in self.spec.weights]
        return [*lines, *self._addresses(exact)]

    def _addresses(self, exact: bool) -> list[str]:
        ks, lines = "ks", []
        if exact:
            ks, start = "exact_ks", "slice_start + " if self.sliced else ""
            lines = [f"{ks} = {start}tl.arange(0, {EXACT_K})"]
        a, b = f"a_rows[:, None] * stride_a + {ks}[None, :]", f"{ks}[:, None]"
        if not self.a_rows:
            a = f"a_rows[:, None] + {ks}[None, :].to(tl.int64) * stride_a"
        b = f"b_cols[None, :] * stride_b + {b}"
        if not self.b_rows:
            b = f"b_cols[None, :] + {ks}[:, None].to(tl.int64) * stride_b"
        name, base = "exact_" if exact else "", "matrix" if self.spec.batch_dims else "ptr"
        lines += [f"{name}a_ptrs = a_{base} + {a}"]
        return lines + [f"{name}{item}_ptrs = {item}_{base} + {b}" for item in self.spec.weights]

    @property
    def _k_inside(self) -> tuple[bool, bool]:
        return self.a_rows, self.b_rows

    def _by_operands(self) -> list[str]:
        """The product of the operands as they are."""
        pointers = self._pointers()
        if self.described:
            pointers = ["if not DESCRIBED:", *(f"    {line}" for line in pointers)]
        return [*pointers, *self._loop()]

    def _by_planes(self) -> list[str]:
        """The product of planes, or of parts, where they hold, else of the operands as they are."""
        exact = self._loop(exact=True)
        if self.planes == 1:
            bounds = "slice_start, slice_end" if self.sliced else "0, K"
            batches = self._batches if self.spec.batch_dims else ""
            exact = [*self._pointers(exact=True), *exact]
            return plane_lines(
                self.spec, (self.a_rows, self.b_rows), bounds, batches, exact, self.may_be_short
            )
        return [
            *self._pointers(),
            *self._loop(step=part_step(self.spec)),
            *parts_end(self.spec, self.may_be_short),
            *(f"    {line}" for line in (*self._addresses(exact=True), *exact)),
        ]

    @property
    def _batches(self) -> str:
        return "tl.num_programs(0) // (tiles_m * tiles_n)"

    def _loop(self, step: Sequence[str] = (), exact: bool = False) -> list[str]:
        """Lines that add a step of K after the other: `step`, or a dot. The `exact` loop is the
        exception and keeps no loads in flight."""
        bounds, limit = ("slice_start, slice_end", "slice_end") if self.sliced else ("0, K", "K")
        name, block = ("exact_", EXACT_K) if exact else ("", "BLOCK_K")
        ks = f"{name}ks + (k - slice_start)" if self.sliced else f"{name}ks + k"
        loop = (
            f"tl.range({bounds}, {block}, num_stages=1)" if exact else f"range({bounds}, {block})"
        )
        cast = ".to(tl.bfloat16)" if self._casts else ""
        weights = dict(zip(self.spec.tiles, self.spec.weights, strict=True))
        step = step or [
            f"{acc} = tl.dot(a{cast}, {tile}{cast}, {acc}{self._dot_option})"
            for acc, tile in zip(self.spec.sums, weights, strict=True)
        ]
        further = f"{block}{'' if self.b_rows else ' * stride_b'}"
        moves = [
            f"{name}a_ptrs += {block}{'' if self.a_rows else ' * stride_a'}",
            *(f"{name}{item}_ptrs += {further}" for item in weights.values()),
        ]
        boxes: list[str] = []
        if self.described:
            tiles = {weight: tile for tile, weight in weights.items()}
            joined = self._joined
            loads = descriptors.load_lines(self.spec, self._k_inside, tiles, joined=joined)
            if joined:
                step = _either(["acc = tl.dot(a, b, acc)"], step)
            boxes = ["if DESCRIBED:", *(f"    {line}" for line in loads)]
            moves = ["if not DESCRIBED:", *(f"    {line}" for line in moves)]
        return [
            f"for k in {loop}:",
            *(f"    {line}" for line in boxes),
            f"    {'el' if boxes else ''}if EVEN_K:",
            f"        a = tl.load({name}a_ptrs)",
            *(f"        {tile} = tl.load({name}{item}_ptrs)" for tile, item in weights.items()),
            "    else:",
            f"        inside = {ks} < {limit}",
            f"        a = tl.load({name}a_ptrs, mask=inside[None, :], other=0.0)",
            *(
                f"        {tile} = tl.load({name}{item}_ptrs, mask=inside[:, None], other=0.0)"
                for tile, item in weights.items()
            ),
            *(f"    {line}" for line in (*step, *moves)),
        ]

    def _end(self) -> list[str]:
        lines = [*(descriptors.joined_end() if self._joined else ()), *masks()]
        if self.split > 1:
            batch = self._batches if self.spec.batch_dims else "1"
            return [
                *lines,
                tile_offsets(self.spec),
                f"plane = tl.cast(M, tl.int64) * N * ({batch})",
                "tl.store(out_ptr + split * plane + tile, acc, mask=tile_mask)",
            ]
        if self.spec.in_pairs:
            lines += pair_lines(halves=self._halves)
        if self.spec.by_parts:
            lines.append("part = tile_n * 2 + half" if self._halves else "part = tile_n")
        lines += share_ends(self.spec) if self.spec.shares else epilogue_lines(self.spec)
        lines = lines if self.spec.store else read_lines(lines)
        if self.described_out:
            lines[-1:] = descriptors.store_lines(lines[-1], self._halves)
        if not self._halves:
            return lines
        half = [
            "acc = left if half == 0 else right",
            "cols = tile_n * BLOCK_N + half * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)",
            *lines,
        ]
        return [
            "# In halves: the whole tile would not fit beside the operands on their way.",
            "halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))",
            "left, right = tl.split(halves)",
            "for half in tl.static_range(2):",
            *(f"    {line}" for line in half),
        ]

    @property
    def _halves(self) -> bool:
        """Whether the epilogue takes the tile in halves."""
        return epilogue_columns(self.schedule) < self.schedule["BLOCK_N"]

    @property
    def _fixed(self) -> dict[str, str]:
        """Sizes that the weight fixes: constants in the kernel, so that what they decide folds."""
        sizes = {**self.spec.columns, "K": self.spec.k}
        return {name: size for name, size in sizes.items() if size.isdigit()}

    @property
    def _free(self) -> dict[str, str]:
        sizes = {"M": self.spec.m, **self.spec.columns, "K": self.spec.k}
        return {name: size for name, size in sizes.items() if name not in self._fixed}

    @property
    def _alike(self) -> bool:
        """Whether several shares have as many columns each."""
        return bool(self.spec.shares) and len(self.spec.columns) == 1

    @property
    def _casts(self) -> bool:
        return self.spec.dtype == "float32" and self.spec.precision == "bf16"

    @property
    def _dot_option(self) -> str:
        if self.spec.dtype != "float32" or self._casts:
            return ""
        found = f'"{dot_precision(self.spec.precision, self.spec.vendor)}"'
        if self.may_be_short:
            found = f'"ieee" if SHORT else {found}'
        return f""", input_precision={'"ieee"' if self.is_short else found}"""

    def _constant(self, name: str) -> str:
        """What a launch has for a constant of the schedule: short products take steps of K that are
        not mostly padding, which fp32's own multiplications would pay for."""
        value = str(self.schedule[name])
        if name != "BLOCK_K" or self.planes:
            return value
        if self.may_be_short and value != EXACT_K:
            return f"{EXACT_K} if {self.spec.k} <= {SHORT_K} else {value}"
        return EXACT_K if self.is_short else value

    def launch(self, operands: Sequence[str], planes: Sequence[str]) -> list[str]:
        """Wrapper lines; `operands` are A and the weights, `planes` those that `_by_planes` read
        and their scales."""
        a, b = operands[:2]
        spec, schedule = self.spec, self.schedule
        lines: list[str] = []
        out = spec.out
        batch = batch_count(spec)
        if self.split > 1:
            out = f"{spec.name}_partials"
            sizes = ", ".join([str(self.split), *([batch] if batch else []), spec.m, spec.n])
            lines.append(
                f"{out} = torch.empty(({sizes}), device={spec.out}.device, dtype=torch.float32)"
            )
        if self.described:
            lines.append("triton.set_allocator(scratch)")
        columns = [spec.n, *(share.n for share in spec.shares)]
        across = " + ".join(tiles_text(n, schedule["BLOCK_N"]) for n in columns)
        across = f"({across})" if spec.shares else across
        tiles = [tiles_text(spec.m, schedule["BLOCK_M"]), across, *([batch] if batch else [])]
        grid = " * ".join(tiles) + (f", {self.split}" if self.split > 1 else ",")
        grid = f"min({schedule['PERSIST']}, {grid[:-1]})," if self.persists else grid
        extras = [] if self.split > 1 else [value for _, value in spec.extras]
        further = [f"{share.b}.stride(-2)" for share in spec.shares]
        arguments = [
            *operands, out, *(share.out for share in spec.shares), *extras, *self._free.values(),
            f"{a}.stride(-2)", f"{b}.stride(-2)", *further, *batch_arguments(spec, a, b),
            *([batch] if self._counts_batches else ()),
            *planes,
        ]  # fmt: skip
        # A slice of K ends on a multiple of BLOCK_K or at K itself.
        options = [f"{name}={size}" for name, size in self._fixed.items()]
        options.append(f"EVEN_K={_divides(schedule['BLOCK_K'], spec.k)}")
        options += [f"SHORT={spec.k} <= {SHORT_K}"] if self.may_be_short else []
        names = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
        names += (["SPLIT_K"] if self.split > 1 else []) + ["num_warps", "num_stages"]
        options += [f"{name}={self._constant(name)}" for name in names]
        if self.persists:
            options.append(f"PROGRAMS={schedule['PERSIST']}")
        if self.described:
            options.append(descriptors.described_option(operands))
        if self.described_out:
            options.append(descriptors.described_out_option(columns))
        return [*lines, *call_lines(self.name, grid, arguments, options)]


def _either(described: Sequence[str], other: Sequence[str]) -> list[str]:
    """Lines for what TMA loads, and lines for what it does not."""
    lines = ["if DESCRIBED:", *(f"    {line}" for line in described)]
    return [*lines, "else:", *(f"    {line}" for line in other)]


def _divides(block: int, size: str) -> str:
    """Whether tiles of `block` cover `size` exactly, as Python: decided now where it can be."""
    return str(int(size) % block == 0) if size.isdigit() else f"{size} % {block} == 0"


def dot_precision(precision: Precision, vendor: str) -> str:
    """Triton's `input_precision` for an fp32 dot: AMD matrix cores multiply fp32 natively."""
    if vendor == "amd":
        return "ieee"
    return "tf32x3" if precision == "strict" else "tf32"
