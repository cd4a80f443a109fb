"""The Triton text of a matrix product with an epilogue, split-K and transposing copies included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agentkernel.compiler.products.schedules import (
    FloatType,
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
)
from agentkernel.domain.verdict import Precision

TRANSPOSE_TILE = 64
REDUCE_TILE = {"BLOCK_M": 16, "BLOCK_N": 64}


@dataclass(frozen=True)
class GemmSpec:
    """C[M, N] = A[M, K] @ B[K, N], then an epilogue; with leading batch dimensions if `batch_dims`.

    `a`, `b`, `out` are names of tensors in the wrapper, with their inner stride 1; `m`, `n`, `k`
    are expressions of the sizes there. How they lie in memory: `a_layout` "k" means A[M, K] (the
    usual one), "m" that `a` is given as [K, M]; `b_layout` "k" means that `b` is given as [N, K]
    (an nn.Linear weight), "n" as [K, N]. Their outer strides are free; 0 broadcasts a batch.
    Without batch dimensions several dimensions of `a`, contiguous among themselves, may make up M.
    `out` is contiguous [*batch, M, N].

    `epilogue` holds Triton lines that turn `acc` (fp32 [BLOCK_M, BLOCK_N]) into what is stored.
    They may use `rows`, `cols` (indices), `row_mask`, `col_mask`, `tile_mask`, `tile` (int64
    offsets into a contiguous [*batch, M, N]), `batch` (0 where there is none), `M`, `N`, and the
    `extras`: (parameter name, wrapper expression) pairs. With `store=False` they also store.
    """

    name: str
    a: str
    b: str
    out: str
    m: str
    n: str
    k: str
    dtype: FloatType
    a_layout: Literal["k", "m"] = "k"
    b_layout: Literal["k", "n"] = "k"
    batch_dims: Literal[0, 1, 2] = 0
    precision: Precision = "strict"
    vendor: Literal["nvidia", "amd"] = "nvidia"
    epilogue: tuple[str, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()
    store: bool = True


@dataclass(frozen=True)
class KernelText:
    """Kernels as top-level code, and the wrapper lines that launch them (both not indented)."""

    source: str
    kernels: tuple[str, ...]
    launch: tuple[str, ...]
    helpers: frozenset[str] = frozenset()


def emit_gemm(spec: GemmSpec, schedule: GemmSchedule) -> KernelText:
    """The kernels of a product under a schedule.

    fp32 under "strict" multiplies in three TF32 products (`tf32x3`), whose partial sums Triton adds
    in fp32 outside the tensor core: error 2.4e-7 at K = 4096 where cuBLAS fp32 has 1.1e-6, and it
    grows with the root of K / BLOCK_K. Finite operands up to 3.39e38 stay finite when split; the
    rests that splitting leaves of operands under 2**-114 are subnormal and may be lost.
    """
    pieces: list[str] = []
    kernels: list[str] = []
    launch: list[str] = []
    layouts = {"a": spec.a_layout, "b": spec.b_layout}
    tensors = {"a": spec.a, "b": spec.b}
    for operand in ("a", "b"):
        if layouts[operand] != "k" and schedule.get(f"TRANSPOSE_{operand.upper()}"):
            if not kernels:
                pieces.append(_transpose_kernel(f"{spec.name}_transpose"))
                kernels.append(f"{spec.name}_transpose")
            copied = f"{spec.name}_{operand}"
            launch += _transpose_launch(spec, operand, tensors[operand], copied)
            tensors[operand], layouts[operand] = copied, "k"
    kernel = _Kernel(spec, schedule, layouts["a"] == "k", layouts["b"] == "k")
    launch += kernel.launch(tensors["a"], tensors["b"])
    pieces.append(kernel.source())
    kernels.append(kernel.name)
    if kernel.split > 1:
        pieces.append(_reduce_kernel(spec))
        kernels.append(f"{spec.name}_reduce")
        launch += _reduce_launch(spec, kernel.split)
    return KernelText("\n\n\n".join(pieces), tuple(dict.fromkeys(kernels)), tuple(launch))


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
    def split(self) -> int:
        return self.schedule.get("SPLIT_K", 1)

    @property
    def name(self) -> str:
        return f"{self.spec.name}_partial" if self.split > 1 else self.spec.name

    def source(self) -> str:
        extras = [] if self.split > 1 else [name for name, _ in self.spec.extras]
        blocks = [*self._fixed, "EVEN_K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
        blocks += ["SPLIT_K"] if self.split > 1 else []
        signature = [
            "a_ptr", "b_ptr", "out_ptr", *extras, *self._free, "stride_a", "stride_b",
            *_batch_parameters(self.spec),
            *(f"{block}: tl.constexpr" for block in blocks),
        ]  # fmt: skip
        lines = [
            f'"""{self._title()}"""',
            *self._program(),
            *self._pointers(),
            *self._loop(),
            *self._end(),
        ]
        return function(self.name, signature, lines)

    def _title(self) -> str:
        a = "A[M, K]" if self.a_rows else "A[K, M]^T"
        b = "B[N, K]^T" if self.b_rows else "B[K, N]"
        if self.split > 1:
            return f"partial[split, M, N] = {a} @ {b} over one of SPLIT_K slices of K."
        return f"C[M, N] = {a} @ {b} and its epilogue, one tile a program."

    def _program(self) -> list[str]:
        lines = [
            "program = tl.program_id(0)",
            "tiles_m = tl.cdiv(M, BLOCK_M)",
            "tiles_n = tl.cdiv(N, BLOCK_N)",
            *_batch_index(self.spec, "tiles_m * tiles_n"),
            "# Tiles are walked in groups of GROUP_M rows, so that what they share stays in L2.",
            "group_tiles = GROUP_M * tiles_n",
            "first_m = program // group_tiles * GROUP_M",
            "group_rows = tl.minimum(tiles_m - first_m, GROUP_M)",
            "tile_m = first_m + program % group_tiles % group_rows",
            "tile_n = program % group_tiles // group_rows",
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
                "ks += slice_start",
            ]
        return lines

    def _pointers(self) -> list[str]:
        lines = ["# Rows and columns past the edge wrap around; what they yield is never stored."]
        lines += ["a_rows = (rows % M).to(tl.int64)", "b_cols = (cols % N).to(tl.int64)"]
        if self.spec.batch_dims:
            lines += [f"a_ptr += {_batch_offset(self.spec, 'a')}"]
            lines += [f"b_ptr += {_batch_offset(self.spec, 'b')}"]
        if self.a_rows:
            lines += ["a_ptrs = a_ptr + a_rows[:, None] * stride_a + ks[None, :]"]
        else:
            lines += ["a_ptrs = a_ptr + a_rows[:, None] + ks[None, :].to(tl.int64) * stride_a"]
        if self.b_rows:
            lines += ["b_ptrs = b_ptr + b_cols[None, :] * stride_b + ks[:, None]"]
        else:
            lines += ["b_ptrs = b_ptr + b_cols[None, :] + ks[:, None].to(tl.int64) * stride_b"]
        return lines

    def _loop(self) -> list[str]:
        if self.split > 1:
            bounds, limit = "slice_start, slice_end", "slice_end"
            ks = "ks + (k - slice_start)"
        else:
            bounds, limit, ks = "0, K", "K", "ks + k"
        cast = ".to(tl.bfloat16)" if self._casts else ""
        step_a = "BLOCK_K" if self.a_rows else "BLOCK_K * stride_a"
        step_b = "BLOCK_K" if self.b_rows else "BLOCK_K * stride_b"
        return [
            "",
            "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
            f"for k in range({bounds}, BLOCK_K):",
            "    if EVEN_K:",
            "        a = tl.load(a_ptrs)",
            "        b = tl.load(b_ptrs)",
            "    else:",
            f"        inside = {ks} < {limit}",
            "        a = tl.load(a_ptrs, mask=inside[None, :], other=0.0)",
            "        b = tl.load(b_ptrs, mask=inside[:, None], other=0.0)",
            f"    acc = tl.dot(a{cast}, b{cast}, acc{self._dot_option})",
            f"    a_ptrs += {step_a}",
            f"    b_ptrs += {step_b}",
            "",
        ]

    def _end(self) -> list[str]:
        lines = list(_masks())
        if self.split > 1:
            batch = "tl.num_programs(0) // (tiles_m * tiles_n)" if self.spec.batch_dims else "1"
            return [
                *lines,
                _tile_offsets(self.spec),
                f"plane = tl.cast(M, tl.int64) * N * ({batch})",
                "tl.store(out_ptr + split * plane + tile, acc, mask=tile_mask)",
            ]
        return [*lines, *_epilogue(self.spec)]

    @property
    def _fixed(self) -> dict[str, str]:
        """Sizes that the weight fixes: constants in the kernel, so that what they decide folds."""
        sizes = {"N": self.spec.n, "K": self.spec.k}
        return {name: size for name, size in sizes.items() if size.isdigit()}

    @property
    def _free(self) -> dict[str, str]:
        sizes = {"M": self.spec.m, "N": self.spec.n, "K": self.spec.k}
        return {name: size for name, size in sizes.items() if name not in self._fixed}

    @property
    def _casts(self) -> bool:
        return self.spec.dtype == "float32" and self.spec.precision == "bf16"

    @property
    def _dot_option(self) -> str:
        if self.spec.dtype != "float32" or self._casts:
            return ""
        return f', input_precision="{dot_precision(self.spec.precision, self.spec.vendor)}"'

    def launch(self, a: str, b: str) -> list[str]:
        spec, schedule = self.spec, self.schedule
        lines: list[str] = []
        out = spec.out
        batch = _batch_count(spec)
        if self.split > 1:
            out = f"{spec.name}_partials"
            sizes = ", ".join([str(self.split), *([batch] if batch else []), spec.m, spec.n])
            lines.append(
                f"{out} = torch.empty(({sizes}), device={spec.out}.device, dtype=torch.float32)"
            )
        tiles = [f"triton.cdiv({spec.m}, {schedule['BLOCK_M']})"]
        tiles += [f"triton.cdiv({spec.n}, {schedule['BLOCK_N']})", *([batch] if batch else [])]
        grid = " * ".join(tiles) + (f", {self.split}" if self.split > 1 else ",")
        extras = [] if self.split > 1 else [value for _, value in spec.extras]
        arguments = [
            a, b, out, *extras, *self._free.values(), f"{a}.stride(-2)",
            f"{b}.stride(-2)", *_batch_arguments(spec, a, b),
        ]  # fmt: skip
        # A slice of K ends on a multiple of BLOCK_K or at K itself.
        options = [f"{name}={size}" for name, size in self._fixed.items()]
        options.append(f"EVEN_K={_divides(schedule['BLOCK_K'], spec.k)}")
        names = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
        names += (["SPLIT_K"] if self.split > 1 else []) + ["num_warps", "num_stages"]
        options += [f"{name}={schedule[name]}" for name in names]
        return [*lines, *call_lines(self.name, grid, arguments, options)]


def _divides(block: int, size: str) -> str:
    """Whether tiles of `block` cover `size` exactly, as Python: decided now where it can be."""
    return str(int(size) % block == 0) if size.isdigit() else f"{size} % {block} == 0"


def dot_precision(precision: Precision, vendor: str) -> str:
    """Triton's `input_precision` for an fp32 dot: AMD matrix cores multiply fp32 natively."""
    if vendor == "amd":
        return "ieee"
    return "tf32x3" if precision == "strict" else "tf32"


def _reduce_kernel(spec: GemmSpec) -> str:
    """Adds the slices in a fixed order, so that the result is the same in every run."""
    signature = [
        "partial_ptr", "out_ptr", *(name for name, _ in spec.extras), "M", "N", "batches",
        *(["INNER_BATCH"] if spec.batch_dims == 2 else []),
        *(f"{name}: tl.constexpr" for name in ("SPLIT_K", "BLOCK_M", "BLOCK_N")),
    ]  # fmt: skip
    lines = [
        '"""C[M, N] = the sum of partial[split, M, N] over split, then the epilogue."""',
        "program = tl.program_id(0)",
        "tiles_m = tl.cdiv(M, BLOCK_M)",
        "tiles_n = tl.cdiv(N, BLOCK_N)",
        *_batch_index(spec, "tiles_m * tiles_n"),
        "rows = program // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)",
        "cols = program % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)",
        *_masks(),
        _tile_offsets(spec),
        "plane = tl.cast(M, tl.int64) * N * batches",
        "",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        "for split in tl.static_range(SPLIT_K):",
        "    acc += tl.load(partial_ptr + split * plane + tile, mask=tile_mask, other=0.0)",
        "",
        *_epilogue(spec, offsets=False),
    ]
    return function(f"{spec.name}_reduce", signature, lines)


def _reduce_launch(spec: GemmSpec, split: int) -> list[str]:
    batch = _batch_count(spec)
    tiles = [f"triton.cdiv({spec.m}, {REDUCE_TILE['BLOCK_M']})"]
    tiles += [f"triton.cdiv({spec.n}, {REDUCE_TILE['BLOCK_N']})", *([batch] if batch else [])]
    inner = [f"{spec.a}.shape[1]"] if spec.batch_dims == 2 else []
    arguments = [
        f"{spec.name}_partials", spec.out, *(value for _, value in spec.extras), spec.m, spec.n,
        batch or "1", *inner,
    ]  # fmt: skip
    options = [f"SPLIT_K={split}", *(f"{key}={value}" for key, value in REDUCE_TILE.items())]
    return call_lines(f"{spec.name}_reduce", " * ".join(tiles) + ",", arguments, options)


def _transpose_kernel(name: str) -> str:
    signature = ["source_ptr", "target_ptr", "rows", "cols", "stride", "inner_batches"]
    signature += ["outer_stride", "inner_stride", "TILE: tl.constexpr"]
    lines = [
        '"""target[cols, rows] = source[rows, cols]^T: wgmma wants fp32 operands with K inside."""',
        "program = tl.program_id(0)",
        "tiles_n = tl.cdiv(cols, TILE)",
        "tiles = tl.cdiv(rows, TILE) * tiles_n",
        "batch = (program // tiles).to(tl.int64)",
        "row = (program % tiles // tiles_n * TILE + tl.arange(0, TILE)).to(tl.int64)",
        "col = (program % tiles_n * TILE + tl.arange(0, TILE)).to(tl.int64)",
        "mask = (row[:, None] < rows) & (col[None, :] < cols)",
        "source_ptr += batch // inner_batches * outer_stride",
        "source_ptr += batch % inner_batches * inner_stride",
        "target_ptr += batch * rows * cols",
        "tile = tl.load(source_ptr + row[:, None] * stride + col[None, :], mask=mask)",
        "targets = target_ptr + col[:, None] * rows + row[None, :]",
        "tl.store(targets, tl.trans(tile), mask=tl.trans(mask))",
    ]
    return function(name, signature, lines)


def _transpose_launch(spec: GemmSpec, operand: str, tensor: str, copied: str) -> list[str]:
    outer, inner = (spec.k, spec.m) if operand == "a" else (spec.k, spec.n)
    tile, dims = TRANSPOSE_TILE, range(spec.batch_dims)
    batch = [f"{tensor}.shape[{dim}]" for dim in dims]
    strides = [f"{tensor}.stride({dim})" for dim in dims]
    strides = ["0"] * (2 - len(strides)) + strides
    sizes = ", ".join([*batch, inner, outer])
    tiles = [f"triton.cdiv({outer}, {tile})", f"triton.cdiv({inner}, {tile})", *batch]
    arguments = [tensor, copied, outer, inner, f"{tensor}.stride(-2)"]
    arguments += [batch[-1] if batch else "1", *strides]
    return [
        f"{copied} = torch.empty(({sizes}), device={tensor}.device, dtype={tensor}.dtype)",
        *call_lines(f"{spec.name}_transpose", f"{' * '.join(tiles)},", arguments, [f"TILE={tile}"]),
    ]


def _masks() -> Iterator[str]:
    yield "row_mask = rows < M"
    yield "col_mask = cols < N"
    yield "tile_mask = row_mask[:, None] & col_mask[None, :]"


def _epilogue(spec: GemmSpec, offsets: bool = True) -> Iterator[str]:
    if offsets:
        yield _tile_offsets(spec)
    yield from spec.epilogue
    if spec.store:
        yield "tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)"


def _tile_offsets(spec: GemmSpec) -> str:
    rows = "(batch * M + rows)" if spec.batch_dims else "rows.to(tl.int64)"
    return f"tile = {rows}[:, None] * N + cols[None, :]"


def _batch_index(spec: GemmSpec, tiles: str) -> list[str]:
    if not spec.batch_dims:
        return ["batch = 0"] if "batch" in " ".join(spec.epilogue) else []
    return [f"batch = (program // ({tiles})).to(tl.int64)", f"program %= {tiles}"]


def _batch_parameters(spec: GemmSpec) -> list[str]:
    if spec.batch_dims == 2:
        return [
            "INNER_BATCH",
            "stride_a_outer",
            "stride_a_inner",
            "stride_b_outer",
            "stride_b_inner",
        ]
    return ["stride_a_batch", "stride_b_batch"] if spec.batch_dims else []


def _batch_arguments(spec: GemmSpec, a: str, b: str) -> list[str]:
    if spec.batch_dims == 2:
        strides = [f"{name}.stride({dim})" for name in (a, b) for dim in (0, 1)]
        return [f"{a}.shape[1]", *strides]
    return [f"{name}.stride(0)" for name in (a, b)] if spec.batch_dims else []


def _batch_offset(spec: GemmSpec, operand: str) -> str:
    if spec.batch_dims == 1:
        return f"batch * stride_{operand}_batch"
    outer = f"batch // INNER_BATCH * stride_{operand}_outer"
    return f"{outer} + batch % INNER_BATCH * stride_{operand}_inner"


def _batch_count(spec: GemmSpec) -> str:
    return " * ".join(f"{spec.a}.shape[{dim}]" for dim in range(spec.batch_dims))


def function(name: str, signature: list[str], lines: list[str]) -> str:
    """The text of a kernel: parameters packed, body indented by four spaces."""
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    return f"@triton.jit\ndef {name}(\n{_packed(signature)}\n):\n{body}"


def call_lines(name: str, grid: str, arguments: list[str], options: list[str]) -> list[str]:
    """The lines that launch a kernel, not indented."""
    return [
        f"{name}[({grid})](",
        *_packed(arguments).split("\n"),
        *_packed(options).split("\n"),
        ")",
    ]


def _packed(items: list[str], width: int = 92) -> str:
    """Comma-separated items on as few indented lines as they fit."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += f" {item}," if lines[-1] else f"    {item},"
    return "\n".join(lines)


__all__ = [
    "GemmFacts",
    "GemmSchedule",
    "GemmSpec",
    "KernelText",
    "call_lines",
    "dot_precision",
    "emit_gemm",
    "function",
    "gemm_schedules",
]
