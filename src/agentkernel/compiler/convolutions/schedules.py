"""Schedules worth trying for a convolution on a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.compiler.convolutions.packing import AS_IT_LIES, AT_ONCE, PACKED, Packing
from agentkernel.compiler.convolutions.spec import Geometry
from agentkernel.compiler.convolutions.transposed import LEAST_ROWS, WEAVES
from agentkernel.compiler.products.schedules import ITEM_BYTES, FloatType
from agentkernel.compiler.sampling import Point, drawn, powers
from agentkernel.domain.target import Target

MAX_SCHEDULES = 10
MOST_DRAWN = 32
"""Of up to 96 drawn the search took what was 8% faster to 9% slower than the best of a dozen tiles
tried by hand (seven problems, H200), and compiled for half a minute."""
ACCUMULATORS = 128
"""fp32 accumulators of a thread, of 255 registers."""
UNROLLED = 400
"""Multiplications of a depthwise kernel's text: 392 compile in 6 to 9 s, 686 in 15."""
MOST_COPIED = 3.0
"""Times the picture that a copy of it may be: 1.33 of three channels in fp32."""
FEW = 256
"""Elements of a window up to which its taps and channels may be one index of K."""
MANY = 400
"""Places of a picture that has tiles of its own: the last of them may be almost empty."""
WIDE = 4
"""Neighbouring elements that a load takes at once: 8 bytes of 16-bit floats, 16 of fp32."""
NARROW = 64
"""Planes and places of a depthwise tile: fewer leave lanes idle."""


@dataclass(frozen=True)
class ConvolutionFacts:
    """What the choice rests on: `batch` pictures of `in_sizes`, and `out_sizes` of the result."""

    geometry: Geometry
    batch: int
    in_sizes: tuple[int, ...]
    out_sizes: tuple[int, ...]
    dtype: FloatType
    whole: bool = False
    """Whether a tile has to hold all channels of a place."""
    apart: bool = False
    """Whether tiles have to end with a picture."""
    taps: int = 1
    """Places of a window that a tile has to hold whole."""


def convolution_schedules(
    facts: ConvolutionFacts, target: Target, sampled: int
) -> list[dict[str, int]]:
    """The most promising first, then at most `sampled` drawn from all that fit. Of depthwise ones
    ROWS, BLOCK_C, BLOCK_X and num_warps; of others READ, BLOCK_M channels, BLOCK_N places,
    BLOCK_K, num_warps, num_stages, and APART where tiles end with a picture."""
    guesses = [*_depthwise(facts)] if by_sums(facts.geometry) else [*_implicit(facts, target)]
    more = _drawn(facts, target, min(sampled, MOST_DRAWN))
    # AMD's matrix cores multiply fp32 as it is.
    exact = {"IEEE": 1} if target.vendor == "amd" and not by_sums(facts.geometry) else {}
    every = (*guesses, *(one for one in more if one not in guesses))
    least = facts.geometry.outside if facts.whole else 0
    return [item | exact for item in every if item.get("BLOCK_M", 0) >= least]


def by_sums(shape: Geometry) -> bool:
    """Whether a convolution is served by sums in registers."""
    return shape.is_depthwise and shape.rank <= 2 and shape.taps <= UNROLLED


def _above(size: int, least: int, most: int) -> int:
    """The power of two from `size` on, within bounds."""
    return min(max(1 << (size - 1).bit_length(), least), most)


def _depthwise(facts: ConvolutionFacts) -> list[dict[str, int]]:
    """Eight rows of half a thousand places, or of several planes where rows are short: on an H200
    1.0 to 1.1 of the best tried at 56 x 56 with 7 x 7 taps and at 512 x 512 with 3 x 3."""
    width = _above(facts.out_sizes[-1], 16, 512)
    planes = max(1, 128 // width)
    two = facts.geometry.rank == 2
    rows = [item for item in (8, 4, 14, 2, 16) if item * facts.geometry.taps <= UNROLLED] or [1]
    rows = rows if two else [1]
    found = []
    for count in rows[:4]:
        for more in (1, 2):
            lanes = planes * more * width
            warps = _above(lanes // 64, 1, 8)
            found.append(
                {"ROWS": count, "BLOCK_C": planes * more, "BLOCK_X": width, "num_warps": warps}
            )
    return found[:MAX_SCHEDULES]


def _reads(facts: ConvolutionFacts) -> list[int]:
    """The ways of reading the picture, the likeliest first; no copy that is many times as large."""
    found = _plain_reads(facts.geometry)
    if copied(facts) <= MOST_COPIED:
        return found
    return [read for read in found if read != PACKED] or [AS_IT_LIES]


def _plain_reads(shape: Geometry) -> list[int]:
    if shape.taps == 1:
        return [AS_IT_LIES, PACKED]
    if shape.is_patches:
        # Each element is read once: a copy would be a pass more, where neighbours make wide loads.
        wide = shape.kernel[-1] >= WIDE
        return [AT_ONCE, PACKED] if wide else [PACKED, AT_ONCE]
    small = shape.inside * shape.taps <= FEW and not shape.transposed
    if small and shape.inside < 16:
        return [AT_ONCE, PACKED]
    return [PACKED, AS_IT_LIES] if shape.inside >= 16 else [PACKED]


def first_read(facts: ConvolutionFacts) -> int:
    """How the picture is read by the likeliest schedules."""
    return _reads(facts)[0]


def copied(facts: ConvolutionFacts) -> float:
    """How many times the picture its copy is: channels are padded, and zeros are written around."""
    shape = facts.geometry
    packing = Packing(shape, PACKED, 32, facts.dtype)
    ratio = packing.channels / shape.inside
    for dim, size in enumerate(facts.in_sizes):
        zeros = packing.low(dim) if shape.transposed else shape.padding[dim] + shape.after[dim]
        ratio *= (size + zeros) / max(1, size)
    return ratio


def _implicit(facts: ConvolutionFacts, target: Target) -> list[dict[str, int]]:
    """Tiles that measured best on an H200: 128 places; channels and K as many as there are."""
    shape, half = facts.geometry, facts.dtype != "float32"
    wide = _above(shape.outside, 16, 256 if facts.whole else 128)
    found: list[dict[str, int]] = []
    for read in _reads(facts):
        # An address for each element, as AT_ONCE has them, spills where K is deep.
        deep = 64 if half and read != AT_ONCE else 32
        if read == AT_ONCE and shape.is_patches and shape.inside * shape.taps % deep:
            deep = 16  # a mask of K makes narrow loads of wide ones
        tiles = _woven(shape, wide, deep) or [(wide, 128, deep, 3), (wide, 128, deep, 4)]
        if not shape.transposed:
            tiles += [(wide, 64, deep, 4), (wide, 256, deep, 3), (max(wide // 2, 16), 128, deep, 4)]
            tiles += [(256, 128, deep, 3)] if shape.outside > 128 else []
        tiles += [(wide, 128, deep // 2, 4)] if shape.inside <= 16 or read == AT_ONCE else []
        tiles.append((min(wide, 64), 64 * max(1, _phases(shape)), 32, 2))
        tiles.append((wide if facts.whole else 16, 32 * max(1, _phases(shape)), 16, 2))
        # The last has the phases apart: of many channels no tile holds them all.
        tiles += [(wide, 32 * max(1, _phases(shape)), 16, 1), (wide, 32, 16, 1)][: 2 * facts.whole]
        for m, n, k, stages in tiles:
            warps = 8 if m * n >= 128 * 128 else 4
            apart = {"APART": 1} if _apart(facts) else {}
            found.append(_tile(read, m, n, k, warps, stages) | apart)
    fitting = [item for item in found if _fits(item, facts, target)]
    first = fitting[0]["READ"] if fitting else PACKED
    ours = [item for item in fitting if item["READ"] == first]
    return ours[: MAX_SCHEDULES - 4] + [item for item in fitting if item["READ"] != first][:4]


def _apart(facts: ConvolutionFacts) -> bool:
    """Whether tiles should end with a picture: they have to, or it has an odd number of places, and
    many."""
    if facts.apart:
        return True
    places = math.prod(facts.out_sizes)
    plain = not facts.geometry.transposed and facts.taps == 1
    return plain and places % 2 == 1 and places >= MANY


def _phases(shape: Geometry) -> int:
    """Phases of the last dimension that a program has; 0 where none are woven."""
    last = shape.stride[-1]
    return last if shape.transposed and last in WEAVES else 0


def _woven(shape: Geometry, wide: int, deep: int) -> list[tuple[int, int, int, int]]:
    """Tiles of 64 and 128 places of each phase of the last dimension, where a program has all."""
    phases = _phases(shape)
    found = []
    for places in (64 * phases, 128 * phases) if phases else ():
        for channels in (wide, wide // 2):
            most = min(channels, 2 * 128 * 128 // places)
            found += [(max(most, 16), places, deep, stages) for stages in (3, 4)]
    return list(dict.fromkeys(found))


def _tile(read: int, m: int, n: int, k: int, warps: int, stages: int) -> dict[str, int]:
    return {"READ": read, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps,
            "num_stages": stages}  # fmt: skip


def _fits(point: Point, facts: ConvolutionFacts, target: Target) -> bool:
    """Whether the operands of all stages, rounded copies of a step's and the tile on its way to
    memory fit."""
    item = ITEM_BYTES[facts.dtype]
    m, n, k = point["BLOCK_M"], point["BLOCK_N"], point["BLOCK_K"]
    phases = _phases(facts.geometry)
    if phases and n >= LEAST_ROWS * phases:
        operands = (n // phases + m * phases) * k * item * point["num_stages"]
    else:
        operands = (m + n) * k * item * (point["num_stages"] + 1)
    bytes_used = max(operands, 4 * m * n)
    threads = 32 * point["num_warps"]
    return (
        bytes_used <= 1024 * target.shared_kb_per_block.value
        and m * n <= ACCUMULATORS * threads
        and threads <= 2 * m * n // 16
    )


def _drawn(facts: ConvolutionFacts, target: Target, most: int) -> Sequence[dict[str, int]]:
    if most <= 0 or target.vendor == "amd":
        return []
    shape = facts.geometry
    if by_sums(shape):
        width = _above(facts.out_sizes[-1], 16, 512)
        axes: dict[str, Sequence[int]] = {
            "ROWS": [1, 2, 4, 7, 8, 14, 16] if shape.rank == 2 else [1],
            "BLOCK_C": powers(1, 16),
            "BLOCK_X": [item for item in powers(32, 512) if item <= width] or [width],
            "num_warps": [1, 2, 4, 8],
        }

        def lanes(point: Point) -> bool:
            tile = point["BLOCK_C"] * point["BLOCK_X"]
            each = tile / (32 * point["num_warps"])
            rows = point["ROWS"] * shape.taps
            work = rows * each
            return tile >= NARROW and 1 <= each <= 8 and work <= 2 * UNROLLED and rows <= UNROLLED

        return drawn(axes, lanes, most)
    axes = {
        "READ": _reads(facts),
        "BLOCK_M": powers(16, _above(shape.outside, 16, 256)),
        "BLOCK_N": [32, 64, 128, 256],
        "BLOCK_K": [16, 32, 64] if facts.dtype == "float32" else [32, 64, 128],
        "num_warps": [4, 8],
        "num_stages": [2, 3, 4],
    }
    if _apart(facts):
        axes["APART"] = [1]
    if shape.transposed:
        axes["BLOCK_N"] = [size * shape.stride[-1] for size in (32, 64, 128)]
        axes["BLOCK_N"] = [size for size in axes["BLOCK_N"] if size & (size - 1) == 0] or [128]
    depth = shape.inside * shape.taps

    def fits(point: Point) -> bool:
        shallow = point["BLOCK_K"] <= max(16, 2 * depth)
        return shallow and point["BLOCK_M"] * 4 >= shape.outside and _fits(point, facts, target)

    return drawn(axes, fits, most)
