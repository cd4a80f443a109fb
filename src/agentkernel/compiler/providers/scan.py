"""Scan kernels, such as cumulative sums with the arithmetic around them, and their schedules.

Short rows are held, several a program; long ones are walked tile by tile, a program or, where there
are few of them, several programs a row; columns are walked in tiles of few places by many columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.providers.protocol import AnySchedule, Setting
from agentkernel.compiler.providers.rows import (
    SPLIT_FROM,
    Rows,
    _strided,
    power_of_two,
    splittable,
    warps_for,
)

HELD = 4096
"""Longest row that is faster held than walked."""
FEW_ROWS = 132
"""Programs that leave an H200's SMs idle."""
WIDE_FROM = 65536
"""Columns from which on a program takes 64 of them: fewer programs would leave SMs waiting."""
COLUMN_TILES = ((16, 64, 1), (32, 64, 1), (16, 128, 1), (32, 32, 1), (64, 32, 2), (16, 128, 4))
NARROW_TILES = ((32, 32, 1), (32, 128, 4), (64, 32, 2), (16, 32, 1), (32, 16, 1), (16, 128, 4))
"""Places, columns and warps. A warp has most places of its columns, so that such a scan needs few
exchanges between threads."""
ROW_TILES = ((2048, 4), (4096, 8), (1024, 4), (2048, 8), (4096, 16))


class Scan(Rows):
    """Provider of fused scan kernels."""

    def schedules(self, step: Region, setting: Setting) -> Sequence[AnySchedule]:
        """Best guess first, without repeats."""
        return list(dict.fromkeys(_schedules(step, setting.symbols)))

    def pattern(self, step: Region) -> str:
        """Always the same."""
        return "scan"


def _schedules(region: Region, symbols: Symbols) -> Iterator[Schedule]:
    length, rows = symbols.hint(region.col_count), symbols.hint(region.row_count)
    cap = power_of_two(length)
    if _strided(region):
        for places, columns, warps in COLUMN_TILES if rows >= WIDE_FROM else NARROW_TILES:
            yield Schedule("looped", min(places, cap), columns, warps)
        return
    if rows < FEW_ROWS and length >= SPLIT_FROM and splittable(region):
        for programs in (1056, 528, 2112):
            chunks = min(1024, power_of_two(max(2, programs // max(rows, 1))))
            for block, warps in ((1024, 4), (2048, 8)):
                yield Schedule("split", block, 1, warps, chunks=chunks)
    held = [
        Schedule("persistent", cap, many, warps_for(cap * many))
        for many in (max(1, 1024 // cap), max(1, 2048 // cap), max(1, 4096 // cap), 1)
    ]
    if length <= HELD:
        yield from held
    for block, warps in ROW_TILES:
        if block < cap:
            yield Schedule("looped", block, 1, warps)
    if HELD < length <= 2 * HELD:
        yield from held[-1:]
    if length <= 64:
        yield Schedule("looped", min(16, cap), 128, 4)
