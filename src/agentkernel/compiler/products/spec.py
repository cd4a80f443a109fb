"""What a matrix product is asked to be, and the lines that all of its kernels share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentkernel.compiler.products.schedules import FloatType
from agentkernel.compiler.products.triangles import Triangle
from agentkernel.domain.verdict import Precision

PART = 128
"""Columns of a product that leave one number of a row's reduction: a tile's, or half of one's."""
TILE = "tile"
"""The offsets of a tile in a result that lies as the product does."""


@dataclass(frozen=True)
class Share:
    """A further weight that A is multiplied with, lying as the first one does, with columns, a
    result and an epilogue of its own."""

    b: str
    out: str
    n: str
    epilogue: tuple[str, ...]
    place: str = TILE


GATES = ("second", "third", "fourth")
"""What the weights of gates, and their products, are called in a kernel."""


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

    `place`: where a tile's elements lie in the result, where that is not `tile`.

    `in_pairs`: an epilogue takes the columns in pairs, and finds in `pair_cols` the indices of
    those of its tile, in `pair_mask` and `pairs_mask` which of them lie inside.

    `by_parts`: the epilogue also finds in `part` which PART columns of the result a tile, or half
    of one, holds; only schedules of tiles that are one or two parts wide are for it.

    `triangles`: what is 0 in operands, as they are stored, or cut off by the epilogue.

    `gates` names one to three further weights that lie as `b` does, with its strides: the epilogue
    then finds A @ gate in `second`, `third` and `fourth`, fp32 like `acc`, at the same places. A's
    tiles are loaded once for all.

    `shares` are further products of A in the same launch: the tiles of their columns follow those
    of the first one's. Such a product has no batch, no triangles, and its schedule no slices of K
    and no turned B. `is_part`: one of them, in a kernel that takes each one's tiles by themselves.
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
    place: str = TILE
    in_pairs: bool = False
    by_parts: bool = False
    triangles: tuple[Triangle, ...] = ()
    gates: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    is_part: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """What A is multiplied with, by its name in the kernel."""
        return ("b", *GATES[: len(self.gates)])

    @property
    def given(self) -> tuple[str, ...]:
        """The weights as the kernel is given them: of several shares a tile picks its own."""
        if not self.shares:
            return self.weights
        return tuple(f"b_{index}" for index in range(len(self.shares) + 1))

    @property
    def tensors(self) -> dict[str, str]:
        """A and the weights by the names in the kernel -> what the wrapper calls them."""
        weights = [self.b, *(share.b for share in self.shares)]
        weights += self.gates
        return {"a": self.a, **dict(zip(self.given, weights, strict=True))}

    @property
    def columns(self) -> dict[str, str]:
        """Columns of each weight: of shares that all have as many, and of gates, the first's."""
        sizes = [self.n, *(share.n for share in self.shares)]
        if len(set(sizes)) == 1:
            return {"N": self.n}
        return {f"N_{index}": size for index, size in enumerate(sizes)}

    @property
    def tiles(self) -> tuple[str, ...]:
        """The kernel's names of the tiles of these."""
        return ("b", "s", "t", "u")[: len(self.weights)]

    @property
    def sums(self) -> tuple[str, ...]:
        """The kernel's names of what their products add up to."""
        return ("acc", *GATES[: len(self.gates)])


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


def parts(spec: GemmSpec) -> list[GemmSpec]:
    """The products of `spec`, each by itself."""
    first = replace(spec, shares=(), is_part=True)
    return [
        first,
        *(
            replace(first, b=share.b, out=share.out, n=share.n, epilogue=share.epilogue,
                    place=share.place)
            for share in spec.shares
        ),
    ]  # fmt: skip


def pair_lines(*, halves: bool) -> list[str]:
    """Lines of the pairs of columns in a tile, or in half of one."""
    first, count = "tile_n * (BLOCK_N // 2)", "BLOCK_N // 2"
    if halves:
        first, count = f"{first} + half * (BLOCK_N // 4)", "BLOCK_N // 4"
    return [
        f"pair_cols = {first} + tl.arange(0, {count})",
        "pair_mask = pair_cols < N // 2",
        "pairs_mask = row_mask[:, None] & pair_mask[None, :]",
    ]


def epilogue_lines(spec: GemmSpec, offsets: bool = True) -> Iterator[str]:
    """Lines from acc to what is stored, with those of `tile` if it is not there yet."""
    if offsets:
        yield tile_offsets(spec)
    yield from spec.epilogue
    if spec.store:
        place = f"out_ptr + {spec.place}"
        yield f"tl.store({place}, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)"


def read_lines(lines: Sequence[str]) -> list[str]:
    """Those of `lines` that bind a name which a later one reads, or bind none."""
    kept: list[str] = []
    for line in reversed(lines):
        bound = re.match(r"(\w+) = ", line)
        if bound is None or re.search(rf"\b{bound[1]}\b", "\n".join(kept)):
            kept.insert(0, line)
    return kept


def outs(spec: GemmSpec) -> list[str]:
    """A kernel's parameters of the results."""
    return ["out_ptr", *(f"out_{index}_ptr" for index in range(1, len(spec.shares) + 1))]


def strides(spec: GemmSpec) -> list[str]:
    """A kernel's parameters of the weights' outer strides: those of a pair lie alike."""
    if not spec.shares:
        return ["stride_b"]
    return [f"stride_{weight}" for weight in spec.given]


def share_lines(spec: GemmSpec, *, planes: bool) -> list[str]:
    """Lines that take a tile of all columns as one of its share's, and pick what this is read from;
    `planes`: those that were made before as well."""
    count = len(spec.given)
    lines = ["# The columns of the weights follow each other: a tile is one weight's."]
    if len(spec.columns) == 1:
        lines += [f"share = tile_n // (tiles_n // {count})", f"tile_n %= tiles_n // {count}"]
    else:
        lines.append("first_1 = tl.cdiv(N_0, BLOCK_N)")
        lines += [
            f"first_{index} = first_{index - 1} + tl.cdiv(N_{index - 1}, BLOCK_N)"
            for index in range(2, count)
        ]
        past = (f"(tile_n >= first_{index}).to(tl.int32)" for index in range(1, count))
        lines.append(f"share = {' + '.join(past)}")
        lines.append(f"tile_n -= {_picked(['0', *(f'first_{i}' for i in range(1, count))])}")
        lines.append(f"N = {_picked(list(spec.columns))}")
    texts = ["b{}_ptr", "stride_b{}", *(("b{}_planes_ptr", "b{}_scale_ptr") if planes else ())]
    for text in texts:
        every = [text.format(f"_{index}") for index in range(count)]
        lines.append(f"{text.format('')} = {_picked(every)}")
    return lines


def _picked(every: Sequence[str]) -> str:
    """What belongs to a tile's share."""
    text = every[-1]
    for index in reversed(range(len(every) - 1)):
        text = f"tl.where(share == {index}, {every[index]}, {text})"
    return text


def share_ends(spec: GemmSpec) -> Iterator[str]:
    """Lines of each share's epilogue, which alone stores."""
    yield tile_offsets(spec)
    epilogues = [(spec.epilogue, spec.place)]
    epilogues += [(share.epilogue, share.place) for share in spec.shares]
    for index, (out, (lines, place)) in enumerate(zip(outs(spec), epilogues, strict=True)):
        before, value = lines[:-1], lines[-1].removeprefix("acc = ") if lines else "acc"
        yield f"if share == {index}:"
        yield from (f"    {line}" for line in before)
        code = value if value.isidentifier() else f"({value})"
        yield f"    tl.store({out} + {place}, {code}.to({out}.dtype.element_ty), mask=tile_mask)"


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
