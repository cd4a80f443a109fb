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
that meets one is multiplied in three TF32 products instead.

Parts of bf16 need no scale: x = h + m + l, h rounded to 8 bits and m cut off after 8, which leaves
|m + l| <= 2**-8 |x| and |l| < 2**-15 |x|. Left out is m l' + l m' + l l', at most 2**-22 |x x'|.
Nothing is marked: a tile that ends with an infinity or NaN is multiplied anew in TF32. Of x below
2**-110 bf16 has no l that is exact: it is off by up to 2**-133.
"""

from __future__ import annotations

from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.products.schedules import BLOCK, SHORT_K
from agentkernel.compiler.products.spec import GemmSpec, batch_count, call_lines, function

LEAST = 2.0**-20
"""What a number but 0 has at least when its block is scaled: 2**-34 of the largest."""
LEAST_ROW = 2.0**-13
"""What the largest of a row of A, or of a column of B, in a block has at least when it is scaled:
2**-36 s is then 2**-23 of it, as of any number that fp16 does not hold as subnormal."""
PLANE_HELPERS = frozenset(("plane_place", "over_place", "split_planes", "plane_product"))
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


def shared_splits(spec: GemmSpec, splits: Splits) -> tuple[list[str], list[str]]:
    """The wrapper's names of all planes and scales of a product, and the lines that make those
    which are not in `splits` yet."""
    names: list[str] = []
    lines: list[str] = []
    for operand, tensor in spec.tensors.items():
        layout = spec.a_layout if operand == "a" else spec.b_layout
        rows = _rows(spec, operand)
        inside = "k" if layout == "k" else "rows"
        key = (tensor, rows, spec.k, inside, str(spec.batch_dims))
        if key not in splits:
            splits[key] = planes_of(spec, operand)
            lines += split_launch(spec, operand)
        names += splits[key]
    return names, lines


def _rows(spec: GemmSpec, operand: str) -> str:
    """Rows of A, or columns of a weight."""
    if operand == "a":
        return spec.m
    return spec.columns.get(operand.replace("b", "N"), spec.n)


def split_launch(spec: GemmSpec, operand: str) -> list[str]:
    """Wrapper lines that make the planes and scales of an operand, by its name in the kernel.

    Planes are fp16 [2, batches, rows, K] or, where K does not lie inside, [2, batches, K, rows],
    both padded; scales are fp32 [batches, row blocks, blocks of K], -1 where a block is marked.
    Of a short K neither is read.
    """
    tensor, rows = spec.tensors[operand], _rows(spec, operand)
    inside = (spec.a_layout if operand == "a" else spec.b_layout) == "k"
    planes, scale = planes_of(spec, operand)
    batch = batch_count(spec) or "1"
    sides = (rows, spec.k) if inside else (spec.k, rows)
    shape = ", ".join(["2", batch, *(f"{blocks_of(side)} * {BLOCK}" for side in sides)])
    kind = f"device={tensor}.device, dtype=torch"
    strides = [f"{tensor}.stride({dim})" for dim in range(spec.batch_dims)]
    strides = [*strides, "0"] if spec.batch_dims == 1 else strides or ["0", "0"]
    inner = f"{tensor}.shape[1]" if spec.batch_dims == 2 else "1"
    call = call_lines(
        f"{spec.name}_split", f"{blocks_of(rows)} * {blocks_of(spec.k)} * {batch},",
        [tensor, planes, scale, rows, spec.k, f"{tensor}.stride(-2)", inner, *strides],
        [f"K_INSIDE={inside}", "num_warps=8"],
    )  # fmt: skip
    if not spec.k.isdigit():
        call = [f"if {spec.k} > {SHORT_K}:", *(f"    {line}" for line in call)]
    return [
        f"{planes} = torch.empty(({shape}), {kind}.float16)",
        f"{scale} = torch.empty(",
        f"    ({batch}, {blocks_of(rows)}, {blocks_of(spec.k)}), {kind}.float32",
        ")",
        *call,
    ]


def split_kernel(name: str) -> str:
    """The pass that splits an operand: it reads it once, a block a program."""
    signature = [
        "source_ptr", "planes_ptr", "scale_ptr", "rows", "depth", "stride", "inner_batches",
        "outer_stride", "inner_stride", "K_INSIDE: tl.constexpr",
    ]  # fmt: skip
    lines = [
        '"""source = scale * (planes[0] + planes[1] / 2048), block by block."""',
        "program = tl.program_id(0)",
        f"deep_blocks = tl.cdiv(depth, {BLOCK})",
        f"row_blocks = tl.cdiv(rows, {BLOCK})",
        "batch = (program // (row_blocks * deep_blocks)).to(tl.int64)",
        f"row = program // deep_blocks % row_blocks * {BLOCK} + tl.arange(0, {BLOCK})",
        f"ks = program % deep_blocks * {BLOCK} + tl.arange(0, {BLOCK})",
        "source_ptr += batch // inner_batches * outer_stride",
        "source_ptr += batch % inner_batches * inner_stride",
        "if K_INSIDE:",
        "    source_ptrs = source_ptr + row.to(tl.int64)[:, None] * stride + ks[None, :]",
        f"    places = row.to(tl.int64)[:, None] * (deep_blocks * {BLOCK}) + ks[None, :]",
        "else:",
        "    source_ptrs = source_ptr + row[:, None] + ks.to(tl.int64)[None, :] * stride",
        f"    places = row[:, None] + ks.to(tl.int64)[None, :] * (row_blocks * {BLOCK})",
        "inside = (row < rows)[:, None] & (ks < depth)[None, :]",
        "x = tl.load(source_ptrs, mask=inside, other=0.0)",
        "largest = tl.max(tl.abs(x), axis=1)",
        "place, holds = plane_place(largest)",
        "high, low, size = split_planes(x, place)",
        "scale = ((127 + place) << 23).to(tl.float32, bitcast=True)",
        f"holds &= (tl.min(size) >= {LEAST}) & (tl.min(over_place(largest, place)) >= {LEAST_ROW})",
        "tl.store(scale_ptr + program, tl.where(holds, scale, -1.0))",
        f"matrix = tl.cast(row_blocks * {BLOCK}, tl.int64) * (deep_blocks * {BLOCK})",
        "planes_ptr += batch * matrix",
        "tl.store(planes_ptr + places, high)",
        f"plane = tl.cast(tl.num_programs(0), tl.int64) * {BLOCK * BLOCK}",
        "tl.store(planes_ptr + plane + places, low)",
    ]
    return function(name, signature, lines)


def plane_lines(
    spec: GemmSpec,
    inside: tuple[bool, bool],
    bounds: str,
    batches: str,
    exact: list[str],
    may_be_short: bool,
) -> list[str]:
    """Lines that bring acc, fp32 [BLOCK_M, BLOCK_N], to the product of planes made before, and the
    sums of its gates; where a block that a tile reads is marked, or K `may_be_short` and is, the
    lines `exact`.

    `inside`: whether A, and B, lie with K inside. `bounds` of K as text; `batches` counts the
    matrices in a plane ("" for one).
    """
    a_rows, b_rows = inside
    a, b = "rows.to(tl.int64)[:, None] * deep + ks[None, :]", "rows[:, None] + ks.to(tl.int64)"
    a = a if a_rows else f"{b}[None, :] * padded_m"
    b = "cols.to(tl.int64)[None, :] * deep + ks[:, None]"
    b = b if b_rows else "cols[None, :] + ks.to(tl.int64)[:, None] * padded_n"
    columns = [weight.replace("b", "col") for weight in spec.weights]
    sides = ["row", *columns]
    holding = [f"(tl.min({side}_scale) > 0)" for side in sides]
    return [
        f"deep_blocks = tl.cdiv(K, {BLOCK})",
        *_scale_places(spec, columns, batches),
        "blocks = tl.arange(0, DEEP)",
        *(
            f"{side}_scale = tl.load({side}_scales + blocks, mask=blocks < deep_blocks, other=1.0)"
            for side in sides
        ),
        f"if {' & '.join((*holding, *(('(not SHORT)',) if may_be_short else ())))}:",
        *(
            f"    {line}"
            for line in [
                f"padded_m = tl.cdiv(M, {BLOCK}) * {BLOCK}",
                f"padded_n = tl.cdiv(N, {BLOCK}) * {BLOCK}",
                f"deep = deep_blocks * {BLOCK}",
                "a_plane = tl.cast(padded_m, tl.int64) * deep",
                "b_plane = tl.cast(padded_n, tl.int64) * deep",
                *(_batched(spec, batches) if batches else ()),
                f"a_highs = a_planes_ptr + {a}",
                *(f"{weight}_highs = {weight}_planes_ptr + {b}" for weight in spec.weights),
                f"for k in range({bounds}, BLOCK_K):",
                *(f"    {line}" for line in _plane_step(spec, columns)),
                f"    a_highs += BLOCK_K{'' if a_rows else ' * padded_m'}",
                *(
                    f"    {weight}_highs += BLOCK_K{'' if b_rows else ' * padded_n'}"
                    for weight in spec.weights
                ),
            ]
        ),
        "else:",
        *(f"    {line}" for line in exact),
    ]


def _scale_places(spec: GemmSpec, columns: list[str], batches: str) -> list[str]:
    """Lines of where the scales lie that a tile meets."""
    batch = {side: f"batch * tl.cdiv({side}, {BLOCK}) + " if batches else "" for side in "MN"}
    row = f"({batch['M']}tile_m * BLOCK_M // {BLOCK}) * deep_blocks"
    column = f"({batch['N']}tile_n * BLOCK_N // {BLOCK}) * deep_blocks"
    return [
        f"row_scales = a_scale_ptr + {row}",
        *(
            f"{name}_scales = {weight}_scale_ptr + {column}"
            for name, weight in zip(columns, spec.weights, strict=True)
        ),
    ]


def _plane_step(spec: GemmSpec, columns: list[str]) -> list[str]:
    """Lines that add one step of K: A's planes are loaded once for all weights."""
    every = list(zip(columns, spec.weights, spec.tiles, spec.sums, strict=True))
    row, place = f"tl.load(row_scales + k // {BLOCK})", f"k // {BLOCK}"
    scale = {acc: "block_scale" if acc == "acc" else f"{acc}_block_scale" for acc in spec.sums}
    return [
        *(f"{scale[acc]} = {row} * tl.load({name}_scales + {place})" for name, _, _, acc in every),
        "a_high, a_low = tl.load(a_highs), tl.load(a_highs + a_plane)",
        *(
            f"{tile}_high, {tile}_low = tl.load({weight}_highs), tl.load({weight}_highs + b_plane)"
            for _, weight, tile, _ in every
        ),
        *(
            f"{acc} += plane_product(a_high, a_low, {tile}_high, {tile}_low) * {scale[acc]}"
            for _, _, tile, acc in every
        ),
    ]


def _batched(spec: GemmSpec, batches: str) -> list[str]:
    return [
        "a_planes_ptr += batch * a_plane",
        *(f"{weight}_planes_ptr += batch * b_plane" for weight in spec.weights),
        f"a_plane *= {batches}",
        f"b_plane *= {batches}",
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
        *(f"    {acc} = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)" for acc in spec.sums),
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
