"""An fp32 product as three products of fp16 planes that are made before it, or as six of bf16 parts
that are made in its loop.

A block of an operand is kept as s (h + l / 2048): s is a power of two that brings the block's
largest magnitude into [2**14, 2**15), h = fp16(x / s) and l = fp16(2048 (x / s - h)). Both round
at 11 bits, h at 2**-24 and l at 2**-35 where fp16 is subnormal: x is off by d(x), at most 2**-23
|x| or 2**-36 s, and s l / 2048 is r(x), at most 2**-11 |x| or 2**-25 s. A product is
s s' (h h' + (h l' + l h') / 2048); left out is l l' / 2**22. So a term is off by at most
|x| d(x') + d(x) |x'| + d(x) d(x') + r(x) r(x'), which is 2**-21 |x x'| but for numbers that are
small beside their block's largest, and a result by the rounding of its sums in fp32 as well
(docs/planes.md).

Blocks that span too much are marked: those with a number below 2**-34 of their largest; of A with a
row, of B with a column, whose largest is below 2**-13 s, since d and r are then large beside all of
it; with a largest outside of [2**-45, 2**45] (s s' would leave fp32's range); and with inf. A tile
that met one is multiplied anew in three TF32 products.

Parts of bf16 need no scale: x = h + m + l, h rounded to 8 bits and m cut off after 8, which leaves
|m + l| <= 2**-8 |x| and |l| < 2**-15 |x|. Left out is m l' + l m' + l l', at most 2**-22 |x x'|.
Nothing is marked: a tile that ends with an infinity or NaN is multiplied anew in TF32. Of x below
2**-110 bf16 has no l that is exact: it is off by up to 2**-133.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.products.schedules import BLOCK, SHORT_K
from agentkernel.compiler.products.spec import GemmSpec, batch_count, call_lines, function

PLANE_HELPERS = frozenset(("split_block", "plane_product"))
"""Functions of `kernel_helpers` that products of planes made before call."""
PART_HELPERS = frozenset(("bf16_parts", "parts_product"))
"""And those that split their operands in the loop."""


def blocks_of(size: str) -> str:
    """How many blocks a size takes, as Python."""
    return str(-(-int(size) // BLOCK)) if size.isdigit() else tiles_text(size, BLOCK)


def planes_of(spec: GemmSpec, operand: str) -> tuple[str, str]:
    """The wrapper's names of an operand's planes and of its scales."""
    return f"{spec.name}_{operand}_planes", f"{spec.name}_{operand}_scale"


def plane_pointers(spec: GemmSpec) -> list[str]:
    """What a product of planes takes beside its operands."""
    sides = ("a", *spec.given)
    return [f"{side}_{part}_ptr" for side in sides for part in ("planes", "scale")]


Splits = dict[tuple[str, ...], tuple[str, str]]
"""What was split already, and how it lies -> the wrapper's names of its planes and scales."""


def shared_splits(spec: GemmSpec, splits: Splits) -> tuple[list[str], str, list[str]]:
    """The wrapper's names of all planes and scales of a product, the kernel that makes those which
    are not in `splits` yet ("" where all are), and the lines that launch it."""
    names: list[str] = []
    missing: list[str] = []
    for operand, tensor in spec.tensors.items():
        inside = str(_k_inside(spec, operand))
        key = (tensor, _rows(spec, operand), spec.k, inside, str(spec.batch_dims))
        if key not in splits:
            splits[key] = planes_of(spec, operand)
            missing.append(operand)
        names += splits[key]
    if not missing:
        return names, "", []
    return names, split_kernel(spec, missing), split_launch(spec, missing)


def _rows(spec: GemmSpec, operand: str) -> str:
    """Rows of A, or columns of a weight."""
    if operand == "a":
        return spec.m
    return spec.columns.get(operand.replace("b", "N"), spec.n)


def _k_inside(spec: GemmSpec, operand: str) -> bool:
    return (spec.a_layout if operand == "a" else spec.b_layout) == "k"


def split_launch(spec: GemmSpec, operands: Sequence[str]) -> list[str]:
    """Wrapper lines that make the planes and scales of operands, by their names in the kernel.

    Planes are fp16 [2, batches, rows, K] or, where K does not lie inside, [2, batches, K, rows],
    both filled up to blocks with zeros; scales are fp32 [batches, row blocks, blocks of K], -1
    where a block is marked. Of a short K neither is read.
    """
    batch = batch_count(spec)
    lines: list[str] = []
    arguments: list[str] = []
    counts: list[str] = []
    for operand in operands:
        tensor, rows = spec.tensors[operand], _rows(spec, operand)
        planes, scale = planes_of(spec, operand)
        count = " * ".join(filter(None, (batch, blocks_of(rows), blocks_of(spec.k))))
        kind = f"device={tensor}.device, dtype=torch"
        lines += [
            f"{planes} = torch.empty((2, {count} * {BLOCK * BLOCK}), {kind}.float16)",
            f"{scale} = torch.empty(({count},), {kind}.float32)",
        ]
        strides = [f"{tensor}.stride({dim})" for dim in range(spec.batch_dims)]
        strides = [*strides, "0"] if spec.batch_dims == 1 else strides or ["0", "0"]
        inner = f"{tensor}.shape[1]" if spec.batch_dims == 2 else "1"
        arguments += [tensor, planes, scale, rows, f"{tensor}.stride(-2)", inner, *strides]
        arguments += [f"{scale}.numel()"]
        counts.append(f"{scale}.numel()")
    call = call_lines(
        f"{spec.name}_split", f"{' + '.join(counts)},", [*arguments, spec.k], ["num_warps=8"]
    )
    if not spec.k.isdigit():
        call = [f"if {spec.k} > {SHORT_K}:", *(f"    {line}" for line in call)]
    return lines + call


def split_kernel(spec: GemmSpec, operands: Sequence[str]) -> str:
    """The pass that splits operands: it reads each once, a block a program."""
    places = ("ptr", "planes_ptr", "scale_ptr", "rows", "stride", "inner", "outer_stride",
              "inner_stride", "blocks")  # fmt: skip
    signature = [f"{operand}_{place}" for operand in operands for place in places]
    lines = [
        '"""Operands as scale * (planes[0] + planes[1] / 2048), block by block."""',
        "program = tl.program_id(0)",
    ]
    before = ""
    for operand in operands:
        values = [f"{operand}_{place}" for place in places]
        call = [
            "split_block(",
            f"    {', '.join(values[:3])}, program{before}, {values[-1]},",
            f"    {', '.join((*values[3:-1], 'depth'))},",
            f"    K_INSIDE={_k_inside(spec, operand)},",
            ")",
        ]
        last = operand == operands[-1]
        test = f"{'el' if before else ''}if program{before} < {operand}_blocks:"
        if len(operands) == 1:
            lines += call
        else:
            lines += ["else:" if last else test, *(f"    {line}" for line in call)]
        before += f" - {operand}_blocks"
    return function(f"{spec.name}_split", [*signature, "depth"], lines)


def plane_lines(
    spec: GemmSpec,
    inside: tuple[bool, bool],
    bounds: str,
    batches: str,
    exact: list[str],
    may_be_short: bool,
) -> list[str]:
    """Lines that bring acc, fp32 [BLOCK_M, BLOCK_N], to the product of planes made before, and the
    sums of its gates; where a block that a tile read is marked, or K `may_be_short` and is, to what
    the lines `exact` add up. That is asked after the loop: before it, a tile would wait for its
    scales with nothing on its way.

    `inside`: whether A, and B, lie with K inside. `bounds` of K as text; `batches` counts the
    matrices in a plane ("" for one).
    """
    a_inside, b_inside = inside
    a, b = "rows.to(tl.int64)[:, None] * deep + ks[None, :]", "rows[:, None] + ks.to(tl.int64)"
    a = a if a_inside else f"{b}[None, :] * padded_m"
    b = "cols.to(tl.int64)[None, :] * deep + ks[:, None]"
    b = b if b_inside else "cols[None, :] + ks.to(tl.int64)[:, None] * padded_n"
    product = [
        f"deep_blocks = tl.cdiv(K, {BLOCK})",
        *_scale_places(spec, batches),
        f"padded_m = tl.cdiv(M, {BLOCK}) * {BLOCK}",
        f"padded_n = tl.cdiv(N, {BLOCK}) * {BLOCK}",
        f"deep = deep_blocks * {BLOCK}",
        "a_plane = tl.cast(padded_m, tl.int64) * deep",
        "b_plane = tl.cast(padded_n, tl.int64) * deep",
        *(_batched(spec, batches) if batches else ()),
        f"a_highs = a_planes_ptr + {a}",
        *(f"{weight}_highs = {weight}_planes_ptr + {b}" for weight in spec.weights),
        f"for k in range({bounds}, BLOCK_K):",
        *(f"    {line}" for line in _plane_step(spec)),
        f"    a_highs += {'BLOCK_K' if a_inside else 'tl.cast(padded_m, tl.int64) * BLOCK_K'}",
        *(
            f"    {weight}_highs += "
            f"{'BLOCK_K' if b_inside else 'tl.cast(padded_n, tl.int64) * BLOCK_K'}"
            for weight in spec.weights
        ),
    ]
    if may_be_short:
        product = ["if not SHORT:", *(f"    {line}" for line in product)]
    return [
        "least = 1.0",
        *product,
        f"if (least < 0.0){' | SHORT' if may_be_short else ''}:",
        *(f"    {line}" for line in (*_anew(spec), *exact)),
    ]


def _anew(spec: GemmSpec) -> list[str]:
    return [f"{acc} = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)" for acc in spec.sums]


def _batched(spec: GemmSpec, batches: str) -> list[str]:
    return [
        "a_planes_ptr += batch * a_plane",
        *(f"{weight}_planes_ptr += batch * b_plane" for weight in spec.weights),
        f"a_plane *= {batches}",
        f"b_plane *= {batches}",
    ]


def _scale_places(spec: GemmSpec, batches: str) -> list[str]:
    """Lines of where the scales lie that a tile meets."""
    batch = {side: f"batch * tl.cdiv({side}, {BLOCK}) + " if batches else "" for side in "MN"}
    row = f"({batch['M']}tile_m * BLOCK_M // {BLOCK}) * deep_blocks"
    column = f"({batch['N']}tile_n * BLOCK_N // {BLOCK}) * deep_blocks"
    return [
        f"row_scales = a_scale_ptr + {row}",
        *(f"{weight}_scales = {weight}_scale_ptr + {column}" for weight in spec.weights),
    ]


def _plane_step(spec: GemmSpec) -> list[str]:
    """Lines that add one step of K: A's planes are loaded once for all weights."""
    every = list(zip(spec.weights, spec.tiles, spec.sums, strict=True))
    scale = {acc: "block_scale" if acc == "acc" else f"{acc}_block_scale" for acc in spec.sums}
    lines = [
        f"block = k // {BLOCK}",
        "row_scale = tl.load(row_scales + block)",
        "least = tl.minimum(least, row_scale)",
    ]
    for weight, _, acc in every:
        lines += [
            f"column_scale = tl.load({weight}_scales + block)",
            "least = tl.minimum(least, column_scale)",
            f"{scale[acc]} = row_scale * column_scale",
        ]
    return [
        *lines,
        "a_high, a_low = tl.load(a_highs), tl.load(a_highs + a_plane)",
        *(
            f"{tile}_high, {tile}_low = tl.load({weight}_highs), tl.load({weight}_highs + b_plane)"
            for weight, tile, _ in every
        ),
        *(
            f"{acc} += plane_product(a_high, a_low, {tile}_high, {tile}_low) * {scale[acc]}"
            for _, tile, acc in every
        ),
    ]


def part_step(spec: GemmSpec) -> list[str]:
    """A step of a product whose operands are split in its loop: A once for all weights."""
    pieces = {side: ", ".join(f"{side}_{part}" for part in ("high", "mid", "low"))
              for side in ("a", *spec.tiles)}  # fmt: skip
    return [
        *(f"{names} = bf16_parts({side})" for side, names in pieces.items()),
        *(
            f"{acc} += parts_product({pieces['a']}, {pieces[tile]})"
            for tile, acc in zip(spec.tiles, spec.sums, strict=True)
        ),
    ]


def parts_end(spec: GemmSpec, may_be_short: bool) -> list[str]:
    """After the loop: what opens the lines that multiply anew. An infinity, or what rounds to one,
    leaves NaN behind, and h h' alone may be one where the sum is not."""
    lost = " | ".join(f"(({acc} - {acc}) != 0.0)" for acc in spec.sums)
    short = " | SHORT" if may_be_short else ""
    return [
        f"lost = tl.max(({lost}).to(tl.int32))",
        f"if (lost > 0){short}:",
        *(f"    {line}" for line in _anew(spec)),
    ]


__all__ = [
    "PART_HELPERS",
    "PLANE_HELPERS",
    "Splits",
    "blocks_of",
    "part_step",
    "parts_end",
    "plane_lines",
    "plane_pointers",
    "planes_of",
    "shared_splits",
    "split_kernel",
    "split_launch",
]
