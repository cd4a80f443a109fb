"""Tiles, warps, stages and splits worth trying for a matrix product on a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentkernel.compiler.sampling import Point, drawn, powers
from agentkernel.domain.knowledge import number_in, tile_in
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision

FloatType = Literal["float32", "float16", "bfloat16"]
GemmSchedule = dict[str, int]
"""BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, num_warps, num_stages; of TRANSPOSE_A, TRANSPOSE_B,
PLANES (1: fp16 planes, 2: bf16 parts), PERSIST (how many programs) and DESCRIPTORS (1: TMA loads,
2: it stores as well) those that are not 0."""
Tile = tuple[int, int, int, int, int]
"""BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages."""

Decision = Callable[[str], str | None]
SHORT: dict[FloatType, str] = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
ITEM_BYTES: dict[FloatType, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
GROUP_M = 8
MAX_SPLIT = 128
TRANSPOSE_PAYS = 512
"""Rows from which turning an fp32 operand K-inside costs less than it brings (2% at 4096)."""
BARRIERS = 256
"""Bytes of shared memory that the stages of TMA wait on, at most."""
LARGE = 1 << 30
"""Multiplications from which splitting fp32 operands into planes pays (25 us and 31 at 1024^3)."""
BLOCK = 128
"""Rows and depth of a block of planes (planes.py), which are padded with zeros to multiples of it:
no tile of theirs needs a mask, and none goes past a block."""
SHORT_K = 32
"""So many terms, at most, are multiplied in fp32 itself: parts of the operands round three times as
often as fp32 does, which sums of more terms hide, and cost no less there (docs/planes.md)."""
LAUNCH_NS = 2000
SM_RATE: dict[FloatType, float] = {"float32": 340.0, "float16": 2270.0, "bfloat16": 2270.0}
"""Multiplications a nanosecond of an SM at 90 and 600 TFLOP/s on 132 of them."""
MAX_SCHEDULES = 10
MOST_PARTS = 5
"""Of them so many multiply planes or parts."""

WGMMA_FP32: tuple[Tile, ...] = (
    (128, 128, 64, 8, 3),  # 91 TFLOP/s at 4096^3 on an H200; every tile with 256 spills
    (128, 128, 32, 8, 4),
    (128, 128, 64, 8, 2),
    (128, 64, 64, 8, 3),
    (128, 64, 32, 8, 4),
    (64, 128, 64, 4, 3),
    (64, 128, 32, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
WGMMA_PLANES: tuple[Tile, ...] = (
    (128, 128, 64, 8, 3),  # no spill; two accumulators leave no room for a larger tile
    (128, 128, 32, 8, 5),
    (128, 64, 64, 4, 4),
)
WGMMA_PARTS: tuple[Tile, ...] = (
    (128, 128, 64, 8, 3),  # 81 TFLOP/s at 64 x 512^3 on an H200, 90 at 4096^3
    (128, 128, 32, 8, 4),  # 79 at 128 x 128 x 262144, where the step of 64 reaches 64
    (64, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 64, 32, 4, 4),
)
WGMMA_TF32: tuple[Tile, ...] = (
    (128, 128, 32, 8, 4),
    (128, 256, 32, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 3),
    (64, 128, 64, 4, 3),
    (64, 64, 64, 4, 4),
)
WGMMA_HALF: tuple[Tile, ...] = (
    (128, 128, 64, 4, 4),  # 596 TFLOP/s at 4096^3 on an H200
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 5),
)
WGMMA_PERSISTENT: tuple[Tile, ...] = (
    (128, 256, 64, 8, 3),  # 669 TFLOP/s at 8192 x 6144 x 4096 on an H200, cuBLAS 697
    (128, 256, 64, 8, 4),
    (128, 128, 64, 8, 4),
)
MMA_DESCRIBED: tuple[Tile, ...] = (
    (128, 128, 64, 8, 2),
    (128, 64, 64, 4, 3),
)
"""For cards with TMA and a tenth of a megabyte of shared memory: cross-compiled, unmeasured."""
MMA_FP32: tuple[Tile, ...] = (
    (128, 128, 32, 8, 3),
    (128, 64, 32, 4, 3),
    (64, 128, 32, 4, 3),
    (64, 64, 32, 4, 4),
    (128, 128, 16, 8, 4),
    (64, 64, 64, 4, 3),
)
MMA_HALF: tuple[Tile, ...] = (
    (128, 128, 32, 4, 4),
    (128, 256, 32, 8, 3),
    (256, 128, 32, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
)
MFMA: tuple[Tile, ...] = (
    (128, 128, 32, 8, 2),
    (256, 128, 32, 8, 2),
    (128, 64, 64, 4, 2),
    (64, 128, 64, 4, 2),
    (64, 64, 64, 4, 2),
)
SKINNY_FP32: tuple[Tile, ...] = ((16, 64, 64, 4, 4), (16, 32, 128, 4, 4), (16, 128, 32, 4, 4))
SKINNY_HALF: tuple[Tile, ...] = ((16, 64, 128, 4, 4), (16, 32, 256, 4, 3), (16, 128, 64, 4, 4))


@dataclass(frozen=True)
class GemmFacts:
    """What decides the schedule of C[M, N] = A[M, K] @ B[K, N], `batch` times.

    Layouts: "k" means that K is the inner dimension in memory (see GemmSpec).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: FloatType = "float32"
    precision: Precision = "strict"
    a_layout: Literal["k", "m"] = "k"
    b_layout: Literal["k", "n"] = "k"
    aligned: bool = True
    """Whether the operands' rows may begin at multiples of 16 bytes."""
    sums: int = 1
    """How many sums a tile has: of gates more than one, which leave parts no registers."""


def gemm_schedules(
    facts: GemmFacts, target: Target, decision: Decision = lambda _: None
) -> list[GemmSchedule]:
    """At most ten schedules, the most promising first; every one fits the shared memory.

    What `decision` says of `gemm.fp32.tile` ("128x128x64"), `.num_warps` and `.num_stages` (of the
    dtype in work) goes first.

    The order is by waves over the SMs times the work of a tile. Where the tiles leave SMs idle, K
    is split too. With wgmma, an fp32 operand that does not have K inside is transposed first, and
    large strict fp32 products multiply fp16 planes.
    """
    plain = [
        _schedule(tile, split)
        for tile in _tiles(facts, target)
        if shared_bytes(tile, facts.dtype, target) <= 1024 * target.shared_kb_per_block.value
        for split in _splits(tile, facts, target)
    ]
    plain.sort(key=lambda schedule: _cost(schedule, facts, target))
    hints = gemm_hints(facts.dtype, decision)
    plain = _led_by(hints, plain, facts, target)
    turned = _transposes(facts, target)
    if turned:
        plain = [schedule | turned for schedule in plain[: MAX_SCHEDULES - 2]] + plain[:2]
    planes, split = _planes(facts, target), _parts(facts, target)
    large = prefer(planes + split[: MOST_PARTS - len(planes)] or _persistent(facts, target), hints)
    plain = plain[: MAX_SCHEDULES - len(large)]
    wanted = bool(large) and all(large[0][name] == value for name, value in hints.items())
    if wanted and target.has_wgmma and facts.m * facts.n * facts.k * facts.batch >= LARGE:
        return large + plain
    return plain[:2] + large + plain[2:]


LEAST_PROGRAMS = 264
"""Two programs for each SM of an H100 or H200: fewer leave a deep, skinny product waiting."""
ACCUMULATORS = 128
"""fp32 accumulators of a thread, of 255 registers."""


def sampled_gemm_schedules(facts: GemmFacts, target: Target, most: int) -> list[GemmSchedule]:
    """At most `most` schedules drawn from all tiles, warps, stages and splits that fit."""
    if most <= 0 or target.vendor == "amd":
        return []
    limit = 1024 * target.shared_kb_per_block.value
    programs = int(target.sm_count.value)

    def fits(point: Point) -> bool:
        tile = tile_of(point)
        threads, split = 32 * point["num_warps"], point["SPLIT_K"]
        programs = _tile_count(tile[0], tile[1], facts)
        return (
            tile[0] * tile[1] <= ACCUMULATORS * threads <= 8 * tile[0] * tile[1]
            and (not point["PLANES"] or _fits_planes(tile))
            and (not point["PERSIST"] or split == 1)
            and (not point["DESCRIPTORS"] or bool(point["PERSIST"]))
            and shared_bytes(tile, facts.dtype, target) + stored_bytes(point) <= limit
            and (split == 1 or (split * programs <= 4 * LEAST_PROGRAMS and programs < LEAST_PROGRAMS
                                and facts.k >= 2 * split * tile[2]))
        )  # fmt: skip

    depth = 2 if facts.dtype == "float32" else 1
    split = {1: _planes(facts, target), 2: _parts(facts, target)}
    axes = {
        "BLOCK_M": _sides(facts.m),
        "BLOCK_N": _sides(facts.n),
        "BLOCK_K": powers(32 // depth, 128 // depth),
        "num_warps": [4, 8],
        "num_stages": [2, 3, 4, 5],
        "GROUP_M": [4, GROUP_M, 16],
        "SPLIT_K": powers(1, 128),
        "PLANES": [0, *(which for which, found in split.items() if found)],
        "PERSIST": [0, programs] if _persistent(facts, target) else [0],
        "DESCRIPTORS": [0, 1, 2] if _described(facts, target) else [0],
    }
    turned = _transposes(facts, target)
    found = [_without_zeros(point) for point in drawn(axes, fits, most)]
    return [point if "PLANES" in point else point | turned for point in found]


def _without_zeros(point: Point) -> Point:
    return {name: value for name, value in point.items() if value}


def tile_of(point: Point) -> Tile:
    """A schedule's tile."""
    return (
        point["BLOCK_M"], point["BLOCK_N"], point["BLOCK_K"], point["num_warps"],
        point["num_stages"],
    )  # fmt: skip


def _sides(size: int) -> list[int]:
    """Sides of a tile that are not mostly padding; one for a small dimension."""
    if size <= 32:
        return [_power_of_two(size)]
    return [side for side in powers(32, 256) if side < 2 * size]


def gemm_hints(dtype: FloatType, decision: Decision, family: str = "gemm") -> GemmSchedule:
    """Constants that the plan fixes for a product in `dtype`; what is out of range is left out."""
    found: GemmSchedule = {}
    for stem in (family, f"{family}.{SHORT[dtype]}"):
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K") if family == "gemm" else ("BLOCK_T", "BLOCK_S")
        tile = tile_in(stem, decision(f"{stem}.tile"))
        found |= dict(zip(names, tile, strict=True)) if tile else {}
        for key in ("num_warps", "num_stages"):
            value = number_in(key, decision(f"{stem}.{key}"))
            found |= {} if value is None else {key: value}
    return found


def _led_by(
    wanted: GemmSchedule, found: list[GemmSchedule], facts: GemmFacts, target: Target
) -> list[GemmSchedule]:
    """The wanted tile first where it fits and leaves no SM idle, also if no table has it."""
    tile = tuple(wanted.get(key, 0) for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    if 0 in tile or min(facts.m, facts.n) <= 32:
        return prefer(found, wanted)
    if _tile_count(tile[0], tile[1], facts) < target.sm_count.value:
        return found
    whole: Tile = (*tile, wanted.get("num_warps", 8), wanted.get("num_stages", 3))  # type: ignore[assignment]
    if shared_bytes(whole, facts.dtype, target) > 1024 * target.shared_kb_per_block.value:
        return prefer(found, wanted)
    first = _schedule(whole, 1)
    return [first, *(item for item in found if item != first)]


def prefer(schedules: list[GemmSchedule], wanted: GemmSchedule) -> list[GemmSchedule]:
    """The schedules that agree with more of what is wanted first, else in their order."""

    def agreement(schedule: GemmSchedule) -> int:
        return -sum(schedule.get(key) == value for key, value in wanted.items())

    return sorted(schedules, key=agreement)


def shared_bytes(tile: Tile, dtype: FloatType, target: Target) -> int:
    """Bytes of shared memory that the pipelined operands take (an epilogue reuses them)."""
    block_m, block_n, block_k, _, stages = tile
    buffers = stages if target.has_wgmma and block_m >= 64 else max(stages - 1, 1)
    return (block_m + block_n) * block_k * ITEM_BYTES[dtype] * buffers


def _tiles(facts: GemmFacts, target: Target) -> list[Tile]:
    """Tiles that are not mostly padding for these sizes."""
    half = facts.dtype != "float32"
    if target.vendor == "amd":
        table = MFMA
    elif target.has_wgmma:
        fp32 = WGMMA_FP32 if facts.precision == "strict" else WGMMA_TF32
        table = WGMMA_HALF if half else fp32
    else:
        table = MMA_HALF if half else MMA_FP32
    skinny = SKINNY_HALF if half else SKINNY_FP32
    if facts.m <= 32:
        rows = _power_of_two(facts.m)
        return [(rows, *tile[1:]) for tile in skinny]
    if facts.n <= 32:
        cols = _power_of_two(facts.n)
        return [(tile[1], cols, *tile[2:]) for tile in skinny]
    kept = [
        tile for tile in table if tile[0] < 2 * max(facts.m, 32) and tile[1] < 2 * max(facts.n, 32)
    ]
    return kept or [min(table)]


def _splits(tile: Tile, facts: GemmFacts, target: Target) -> list[int]:
    """1, and the split that fills the SMs (skinny tiles: four times) where the tiles do not."""
    tiles = _tile_count(tile[0], tile[1], facts)
    bandwidth_bound = min(tile[0], tile[1]) <= 32
    room = int(target.sm_count.value) * (4 if bandwidth_bound else 1) // tiles
    split = min(room, facts.k // (4 * tile[2]), MAX_SPLIT)
    return [1] if split < 2 else [1, 1 << (split.bit_length() - 1)]


def _schedule(tile: Tile, split: int) -> GemmSchedule:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return dict(zip(names, tile, strict=True)) | {"GROUP_M": GROUP_M, "SPLIT_K": split}


def _planes(facts: GemmFacts, target: Target) -> list[GemmSchedule]:
    """Schedules that multiply fp16 planes of fp32 operands; none for what is small, and none where
    a tile or two reads each element: those are split as they are read."""
    small = min(facts.m, facts.n, facts.k) < 2 * BLOCK
    if not _in_parts(facts, target) or small or max(facts.m, facts.n) <= 2 * BLOCK:
        return []
    return _cheapest(WGMMA_PLANES, {"PLANES": 1}, facts, target)


def _parts(facts: GemmFacts, target: Target) -> list[GemmSchedule]:
    """Schedules that multiply bf16 parts of fp32 operands; none for a dimension that is small."""
    small = min(facts.m, facts.n, facts.k) < BLOCK // 2
    if not _in_parts(facts, target) or small or facts.sums > 1:
        return []
    # A step of 64 and the mask of a K that it does not divide are too many registers.
    deep = BLOCK // 2 if facts.k % (BLOCK // 2) == 0 else BLOCK // 4
    tiles = [
        tile
        for tile in WGMMA_PARTS
        if tile[0] < 2 * facts.m and tile[1] < 2 * facts.n and tile[2] <= deep
    ]
    return _cheapest(tiles, {"PLANES": 2}, facts, target)


def _in_parts(facts: GemmFacts, target: Target) -> bool:
    return facts.dtype == "float32" and facts.precision == "strict" and target.has_wgmma


def _cheapest(
    tiles: Sequence[Tile], more: GemmSchedule, facts: GemmFacts, target: Target
) -> list[GemmSchedule]:
    found = [
        _schedule(tile, split) | more for tile in tiles for split in _splits(tile, facts, target)
    ]
    return sorted(found, key=lambda schedule: _cost(schedule, facts, target))[:3]


def _persistent(facts: GemmFacts, target: Target) -> list[GemmSchedule]:
    """Schedules of a product in 16 bits whose programs stay, a program on each SM: by descriptors
    where the card has TMA, through pointers where it has wgmma."""
    if facts.dtype == "float32" or facts.m < BLOCK or facts.n < BLOCK:
        return []
    stay = {"PERSIST": int(target.sm_count.value)}
    tiles = [tile for tile in WGMMA_PERSISTENT if tile[1] <= facts.n] if target.has_wgmma else []
    return [*_described(facts, target), *(_schedule(tile, 1) | stay for tile in tiles)]


def _described(facts: GemmFacts, target: Target) -> list[GemmSchedule]:
    """Those of them that TMA serves: the whole tile's way through descriptors first, then with
    larger groups, then with one stage more."""
    if facts.dtype == "float32" or not has_tma(target) or facts.batch > 1:
        return []
    if facts.m < BLOCK or facts.n < BLOCK or not facts.aligned:
        return []
    more = {"PERSIST": int(target.sm_count.value), "DESCRIPTORS": 2}
    table = WGMMA_PERSISTENT if target.has_wgmma else MMA_DESCRIBED
    tiles = [_schedule(tile, 1) | more for tile in table if tile[1] <= facts.n]
    grouped = [tile | {"GROUP_M": 2 * GROUP_M} for tile in tiles[:1]]
    limit = 1024 * target.shared_kb_per_block.value
    return [
        item
        for item in (*tiles[:1], *grouped, *tiles[1:2])
        if shared_bytes(tile_of(item), facts.dtype, target) + stored_bytes(item) <= limit
    ]


def has_tma(target: Target) -> bool:
    """Whether the card copies by descriptors: Hopper and later."""
    return target.capability is not None and target.capability >= (9, 0)


def stored_bytes(schedule: GemmSchedule) -> int:
    """Bytes of shared memory beside the operands that a result takes on its way to TMA."""
    if schedule.get("DESCRIPTORS") != 2:
        return 0
    return 2 * schedule["BLOCK_M"] * epilogue_columns(schedule) + BARRIERS


def epilogue_columns(schedule: GemmSchedule) -> int:
    """Columns that an epilogue holds at once: programs that stay take wide tiles in halves."""
    halved = "PERSIST" in schedule and schedule["BLOCK_N"] >= 256
    return schedule["BLOCK_N"] // 2 if halved else schedule["BLOCK_N"]


def _fits_planes(tile: Tile) -> bool:
    """Planes are padded to 128. A step's sum, of planes or of parts, takes as many registers as the
    tile's."""
    return max(tile[:3]) <= BLOCK and tile[0] * tile[1] <= ACCUMULATORS // 2 * 32 * tile[3]


def _transposes(facts: GemmFacts, target: Target) -> GemmSchedule:
    if facts.dtype != "float32" or facts.precision == "bf16" or not target.has_wgmma:
        return {}
    turned: GemmSchedule = {}
    if facts.a_layout != "k" and facts.n >= TRANSPOSE_PAYS:
        turned["TRANSPOSE_A"] = 1
    if facts.b_layout != "k" and facts.m >= TRANSPOSE_PAYS:
        turned["TRANSPOSE_B"] = 1
    return turned


def _cost(schedule: GemmSchedule, facts: GemmFacts, target: Target) -> float:
    """Waves of programs times the length of K times the area and the rim of a tile.

    Tiles of more than 128 x 128 pay 20% for the registers that they lack in an epilogue.
    """
    rows, cols = schedule["BLOCK_M"], schedule["BLOCK_N"]
    programs = _tile_count(rows, cols, facts) * schedule["SPLIT_K"]
    resident = 4 if min(rows, cols) <= 32 else 1
    waves = -(-programs // (resident * int(target.sm_count.value))) * resident
    work = rows * cols + 24 * (rows + cols)
    spilling = 1.2 if rows * cols > 128 * 128 else 1.0
    found = waves * facts.k / schedule["SPLIT_K"] * work * spilling
    return found + _reducing(schedule["SPLIT_K"], facts, target)


def _reducing(split: int, facts: GemmFacts, target: Target) -> float:
    """What a second launch that adds slices of K takes, in multiplications of an SM meanwhile."""
    if split == 1:
        return 0.0
    moved = split * facts.m * facts.n * facts.batch * 2 * ITEM_BYTES["float32"]
    return (LAUNCH_NS + moved / target.dram_gb_per_s.value) * SM_RATE[facts.dtype]


def _tile_count(rows: int, cols: int, facts: GemmFacts) -> int:
    return -(-facts.m // rows) * -(-facts.n // cols) * facts.batch


def _power_of_two(size: int) -> int:
    """The padded size of a small dimension; a dot needs at least 16."""
    return 16 if size <= 16 else 32


__all__ = [
    "FloatType",
    "GemmFacts",
    "GemmSchedule",
    "gemm_schedules",
    "sampled_gemm_schedules",
    "shared_bytes",
    "tile_of",
]
