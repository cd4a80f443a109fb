"""What a matrix product is asked to be, and the lines that all of its kernels share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agentkernel.compiler.products.schedules import FloatType
from agentkernel.compiler.products.triangles import Triangle
from agentkernel.domain.verdict import Precision

PART = 128
"""Columns of a product that leave one number of a row's reduction: a tile's, or half of one's."""


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

    `out_is_float`: whether `out` holds floats, which alone a descriptor stores.

    `by_parts`: the epilogue also finds in `part` which PART columns of the result a tile, or half
    of one, holds; only schedules of tiles that are one or two parts wide are for it.

    `triangles`: what is 0 in operands, as they are stored, or cut off by the epilogue.

    `second` names a second weight that lies as `b` does, with its strides: the epilogue then finds
    A @ second in `second`, fp32 like `acc`, at the same places. A's tiles are loaded once for both.
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
    out_is_float: bool = True
    by_parts: bool = False
    triangles: tuple[Triangle, ...] = ()
    second: str = ""

    @property
    def weights(self) -> tuple[str, ...]:
        """What A is multiplied with, by its name in the kernel: a pair has a second one."""
        return ("b", "second") if self.second else ("b",)

    @property
    def tiles(self) -> tuple[str, ...]:
        """The kernel's names of the tiles of these."""
        return ("b", "s") if self.second else ("b",)

    @property
    def sums(self) -> tuple[str, ...]:
        """The kernel's names of what their products add up to."""
        return ("acc", "second") if self.second else ("acc",)


@dataclass(frozen=True)
class KernelText:
    """Kernels as top-level code, and the wrapper lines that launch them (both not indented)."""

    source: str
    kernels: tuple[str, ...]
    launch: tuple[str, ...]
    helpers: frozenset[str] = frozenset()


def masks() -> Iterator[str]:
    """Lines of what lies inside of the result."""
    yield "row_mask = rows < M"
    yield "col_mask = cols < N"
    yield "tile_mask = row_mask[:, None] & col_mask[None, :]"


def epilogue_lines(spec: GemmSpec, offsets: bool = True) -> Iterator[str]:
    """Lines from acc to what is stored, with those of `tile` if it is not there yet."""
    if offsets:
        yield tile_offsets(spec)
    yield from spec.epilogue
    if spec.store:
        yield "tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)"


def read_lines(lines: Sequence[str]) -> list[str]:
    """Those of `lines` that bind a name which a later one reads, or bind none."""
    kept: list[str] = []
    for line in reversed(lines):
        bound = re.match(r"(\w+) = ", line)
        if bound is None or re.search(rf"\b{bound[1]}\b", "\n".join(kept)):
            kept.insert(0, line)
    return kept


def tile_offsets(spec: GemmSpec) -> str:
    """The line of `tile`: where a tile lies in the result."""
    rows = "(batch * M + rows)" if spec.batch_dims else "rows.to(tl.int64)"
    return f"tile = {rows}[:, None] * N + cols[None, :]"


def batch_index(spec: GemmSpec, tiles: str) -> list[str]:
    """Lines that take the batch off `program`; each matrix has `tiles`."""
    if not spec.batch_dims:
        return ["batch = 0"] if "batch" in " ".join(spec.epilogue) else []
    return [f"batch = (program // ({tiles})).to(tl.int64)", f"program %= {tiles}"]


def batch_parameters(spec: GemmSpec) -> list[str]:
    """A kernel's parameters of the batch."""
    if spec.batch_dims == 2:
        return [
            "INNER_BATCH",
            "stride_a_outer",
            "stride_a_inner",
            "stride_b_outer",
            "stride_b_inner",
        ]
    return ["stride_a_batch", "stride_b_batch"] if spec.batch_dims else []


def batch_arguments(spec: GemmSpec, a: str, b: str) -> list[str]:
    """What a launch gives for them, with the operands' names."""
    if spec.batch_dims == 2:
        strides = [f"{name}.stride({dim})" for name in (a, b) for dim in (0, 1)]
        return [f"{a}.shape[1]", *strides]
    return [f"{name}.stride(0)" for name in (a, b)] if spec.batch_dims else []


def batch_offset(spec: GemmSpec, operand: str) -> str:
    """Where a batch's matrix of an operand begins."""
    if spec.batch_dims == 1:
        return f"batch * stride_{operand}_batch"
    outer = f"batch // INNER_BATCH * stride_{operand}_outer"
    return f"{outer} + batch % INNER_BATCH * stride_{operand}_inner"


def batch_count(spec: GemmSpec) -> str:
    """Matrices of the batch, as Python; empty for one."""
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
