"""The Triton text of the passes around a product: turning an operand, adding slices of K."""

from __future__ import annotations

from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.products.spec import (
    GemmSpec,
    batch_count,
    batch_index,
    call_lines,
    epilogue_lines,
    function,
    masks,
    tile_offsets,
)

TRANSPOSE_TILE = 64
REDUCE_COLS = 64
REDUCED = 16384
"""Partial sums that a program adds: enough programs where a small result has many slices."""


def reduce_kernel(spec: GemmSpec) -> str:
    """The text that adds the slices, in a fixed order: the result is the same in every run."""
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
        *batch_index(spec, "tiles_m * tiles_n"),
        "rows = program // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)",
        "cols = program % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)",
        *masks(),
        tile_offsets(spec),
        "plane = tl.cast(M, tl.int64) * N * batches",
        "",
        "splits = tl.arange(0, SPLIT_K).to(tl.int64)[:, None, None]",
        "partials = partial_ptr + splits * plane + tile[None, :, :]",
        "acc = tl.sum(tl.load(partials, mask=tile_mask[None, :, :], other=0.0), axis=0)",
        "",
        *epilogue_lines(spec, offsets=False),
    ]
    return function(f"{spec.name}_reduce", signature, lines)


def reduce_launch(spec: GemmSpec, split: int) -> list[str]:
    """Wrapper lines that add the slices of K."""
    rows = min(16, max(1, REDUCED // REDUCE_COLS // split))
    batch = batch_count(spec)
    tiles = [tiles_text(spec.m, rows), tiles_text(spec.n, REDUCE_COLS)]
    tiles += [batch] if batch else []
    inner = [f"{spec.a}.shape[1]"] if spec.batch_dims == 2 else []
    arguments = [
        f"{spec.name}_partials", spec.out, *(value for _, value in spec.extras), spec.m, spec.n,
        batch or "1", *inner,
    ]  # fmt: skip
    options = [f"SPLIT_K={split}", f"BLOCK_M={rows}", f"BLOCK_N={REDUCE_COLS}"]
    return call_lines(f"{spec.name}_reduce", " * ".join(tiles) + ",", arguments, options)


def transpose_kernel(name: str) -> str:
    """The text that turns an operand."""
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


def transpose_launch(spec: GemmSpec, operand: str, tensor: str, copied: str) -> list[str]:
    """Wrapper lines that turn `tensor`, which is `operand` ("a" or "b"), into `copied`."""
    outer, inner = (spec.k, spec.m) if operand == "a" else (spec.k, spec.n)
    tile, dims = TRANSPOSE_TILE, range(spec.batch_dims)
    batch = [f"{tensor}.shape[{dim}]" for dim in dims]
    strides = [f"{tensor}.stride({dim})" for dim in dims]
    strides = ["0"] * (2 - len(strides)) + strides
    sizes = ", ".join([*batch, inner, outer])
    tiles = [tiles_text(outer, tile), tiles_text(inner, tile), *batch]
    arguments = [tensor, copied, outer, inner, f"{tensor}.stride(-2)"]
    arguments += [batch[-1] if batch else "1", *strides]
    return [
        f"{copied} = torch.empty(({sizes}), device={tensor}.device, dtype={tensor}.dtype)",
        *call_lines(f"{spec.name}_transpose", f"{' * '.join(tiles)},", arguments, [f"TILE={tile}"]),
    ]
