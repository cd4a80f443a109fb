"""Copies that a convolution's product reads: weights by blocks of K, the picture channels-last."""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.compiler.convolutions.spec import ConvolutionSpec, Geometry, factor
from agentkernel.compiler.products.schedules import FloatType
from agentkernel.compiler.products.spec import KernelText, call_lines, function

AS_IT_LIES, AT_ONCE, PACKED = 0, 1, 2
ACCESS_BYTES = 16
"""The widest load."""


@dataclass(frozen=True)
class Packing:
    """How K is cut into blocks, and how the copies lie.

    Weights: [blocks, channels out, depth]. A block is a tap with its channels, or, where the whole
    window is one, `AT_ONCE`, or, of a packed picture, a row of taps with their channels (`joined`).
    The picture: [batch, groups, *sizes with padding, channels], channels padded to a wide load.
    """

    geometry: Geometry
    read: int
    block_k: int
    dtype: FloatType

    @property
    def joined(self) -> bool:
        """Whether the taps of the last dimension lie one behind the other in memory."""
        shape = self.geometry
        return self.read == PACKED and not shape.transposed and shape.dilation[-1] == 1

    @property
    def channels(self) -> int:
        """Channels of a group in the copy of the picture."""
        wide = ACCESS_BYTES // (4 if self.dtype == "float32" else 2)
        return -(-self.geometry.inside // wide) * wide

    @property
    def run(self) -> int:
        """Elements of K in one block."""
        shape = self.geometry
        if self.read == AT_ONCE:
            return shape.inside * shape.taps
        if self.read == AS_IT_LIES:
            return shape.inside
        return self.channels * (shape.kernel[-1] if self.joined else 1)

    @property
    def blocks(self) -> int:
        """Blocks of K."""
        if self.read == AT_ONCE:
            return 1
        return self.geometry.taps // (self.geometry.kernel[-1] if self.joined else 1)

    @property
    def steps(self) -> int:
        """Steps of BLOCK_K in a block."""
        return -(-self.run // self.block_k)

    @property
    def depth(self) -> int:
        """Elements of a block of the weights, with what fills the last step."""
        return self.steps * self.block_k

    def low(self, dim: int) -> int:
        """Zeros before the picture's first place."""
        shape = self.geometry
        if not shape.transposed:
            return shape.padding[dim]
        return (shape.kernel[dim] - 1) * shape.dilation[dim] // shape.stride[dim]

    def width(self, dim: int) -> str:
        """Places of a dimension with its padding, as Python over IN and OUT."""
        shape = self.geometry
        if not shape.transposed:
            return f"IN_{dim} + {shape.padding[dim] + shape.after[dim]}"
        s, p = shape.stride[dim], shape.padding[dim]
        last = f"(OUT_{dim} + {s - 1}) // {s} + {(s - 1 + p) // s}"
        return f"{self.low(dim)} + max(IN_{dim}, {last})"


def pack_weights(spec: ConvolutionSpec, packing: Packing) -> KernelText:
    """The kernel that copies the weights, and its launch."""
    shape, name = spec.geometry, spec.called("pack")
    total = packing.blocks * shape.groups * shape.outside * packing.depth
    taps, kernel = shape.taps, shape.kernel[-1]
    if packing.read == AT_ONCE:
        where = [f"channel = k // {taps}", f"tap = k % {taps}"]
    elif packing.joined:
        where = [
            f"channel = k % {packing.channels}",
            f"tap = block * {kernel} + k // {packing.channels}",
        ]
    else:
        where = ["channel = k", "tap = block"]
    rows = shape.groups * shape.outside
    source = f"(row * {shape.inside} + channel) * {taps} + tap"
    if shape.turned:
        where.append(f"tap = {taps - 1} - tap")
    if shape.transposed or shape.turned:
        first = f"row // {shape.outside} * {shape.inside} + channel"
        source = f"(({first}) * {shape.outside} + row % {shape.outside}) * {taps} + tap"
    rounds = spec.dtype == "float32"
    lines = [
        f'"""Weights as [{packing.blocks} blocks, {rows} channels, {packing.depth}], 0 past the end'
        ' of a block."""',
        "at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        f"k = at % {packing.depth}",
        f"row = at // {packing.depth} % {rows}",
        f"block = at // {packing.depth * rows}",
        *where,
        f"inside = (at < {total}) & (k < {packing.run}) & (channel < {shape.inside})",
        f"w = tl.load(weight_ptr + ({source}), mask=inside, other=0.0)",
        *(["if TF32:", "    w = to_tf32(w)"] if rounds else []),
        f"tl.store(packed_ptr + at, w, mask=at < {total})",
    ]
    signature = [
        "weight_ptr", "packed_ptr", *(["TF32: tl.constexpr"] if rounds else []),
        "BLOCK: tl.constexpr",
    ]  # fmt: skip
    out = spec.called("weight")
    options = [f"TF32={spec.rounding}"] if rounds else []
    launch = [
        f"{out} = torch.empty({total}, device={spec.x}.device, dtype={spec.x}.dtype)",
        *call_lines(
            name, f"{-(-total // WEIGHTS_BLOCK)},", [spec.weight, out],
            [*options, f"BLOCK={WEIGHTS_BLOCK}"],
        ),
    ]  # fmt: skip
    return KernelText(function(name, signature, lines), (name,), tuple(launch))


WEIGHTS_BLOCK = 1024
PICTURE_PLACES = 128
PICTURE_CHANNELS = 32


def pack_picture(spec: ConvolutionSpec, packing: Packing) -> KernelText:
    """The kernel that copies the picture, and its launch."""
    shape, name = spec.geometry, spec.called("last")
    dims = range(shape.rank)
    block = min(PICTURE_CHANNELS, 1 << (packing.channels - 1).bit_length())
    places = PICTURE_PLACES * PICTURE_CHANNELS // block
    tiles = -(-packing.channels // block)
    split = ["at_0 = place"]
    if shape.rank == 2:
        split = ["at_0 = place // WIDE_1", "at_1 = place % WIDE_1"]
    elif shape.rank == 3:
        split = [
            "at_0 = place // (WIDE_1 * WIDE_2)",
            "at_1 = place // WIDE_2 % WIDE_1",
            "at_2 = place % WIDE_2",
        ]
    offset = "at_0"
    for dim in dims[1:]:
        offset = f"({offset}) * IN_{dim} + at_{dim}"
    rounds = spec.dtype == "float32"
    lines = [
        '"""The picture as [batch, groups, places with padding, channels], 0 in the padding."""',
        *(f"WIDE_{dim}: tl.constexpr = {packing.width(dim)}" for dim in dims),
        f"PLANE: tl.constexpr = {' * '.join(f'WIDE_{dim}' for dim in dims)}",
        "program = tl.program_id(0)",
        "tiles = tl.cdiv(PLANE, PLACES)",
        "tile = program % tiles",
        f"channel = program // tiles % {tiles} * CHANNELS + tl.arange(0, CHANNELS)",
        f"image = (program // (tiles * {tiles})).to(tl.int64)",
        "place = tile * PLACES + tl.arange(0, PLACES)",
        *split,
        *(f"at_{dim} -= {packing.low(dim)}" for dim in dims if packing.low(dim)),
        "inside = (place < PLANE)"
        + "".join(f" & (at_{dim}.to(tl.uint32) < IN_{dim})" for dim in dims),
        f"x_ptrs = x_ptr + (image * {shape.inside} + channel)[:, None]"
        f" * ({' * '.join(f'IN_{dim}' for dim in dims)})",
        f"x = tl.load(x_ptrs + ({offset})[None, :],"
        f" mask=(channel < {shape.inside})[:, None] & inside[None, :], other=0.0)",
        *(["if TF32:", "    x = to_tf32(x)"] if rounds else []),
        f"last_ptrs = last_ptr + (image * PLANE + place)[:, None] * {packing.channels}",
        f"tl.store(last_ptrs + channel[None, :], tl.trans(x), mask=(place < PLANE)[:, None]"
        f" & (channel < {packing.channels})[None, :])",
    ]
    fixed = [f"{side}_{dim}" for side in ("IN", "OUT") for dim in dims]
    fixed += [*(["TF32"] if rounds else []), "PLACES", "CHANNELS"]
    signature = ["x_ptr", "last_ptr", *(f"{item}: tl.constexpr" for item in fixed)]
    out = spec.called("picture")
    wides = []
    for dim in dims:
        text = packing.width(dim)
        text = text.replace(f"IN_{dim}", factor(spec.in_sizes[dim])).replace(
            f"OUT_{dim}", factor(spec.out_sizes[dim])
        )
        wides.append(f"({text})")
    plane = " * ".join(wides)
    images = factor(spec.batch)
    images += f" * {shape.groups}" if shape.groups > 1 else ""
    options = spec.sizes
    options += [f"TF32={spec.rounding}"] if rounds else []
    options += [f"PLACES={places}", f"CHANNELS={block}"]
    launch = [
        f"{out} = torch.empty({images} * {plane} * {packing.channels}, device={spec.x}.device,"
        f" dtype={spec.x}.dtype)",
        *call_lines(
            name, f"triton.cdiv({plane}, {places}) * {tiles} * {images},", [spec.x, out], options
        ),
    ]
    return KernelText(function(name, signature, lines), (name,), tuple(launch))
