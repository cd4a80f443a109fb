"""Schedules with tiles so small that every loop of a small problem runs more than once."""

from agentkernel.compiler.drop_in.wrapper import AnySchedule
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.pipeline import Compiled, power_of_two, splittable
from agentkernel.compiler.products.step import ProductStep

FORMS = ("persistent", "looped", "single", "split")
"""`single` is looped with one row a program, and flat where nothing is reduced."""
MOST_TILES = 32
"""A lane adds no more numbers one by one than under the schedules that are measured: equal numbers
are rounded the same way each time, and 168 of them were 11 ulp off."""
FLAT, ROWS = 256, 8
"""Of a flat program, and of one that holds rows. The judge's own sizes start several; each costs
the interpreter milliseconds, and many more than a few show nothing more."""
TILE = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 4, "SPLIT_K": 1,
        "num_warps": 4, "num_stages": 2}  # fmt: skip


def small(compiled: Compiled, form: str) -> dict[object, AnySchedule]:
    """Tiles so small that every loop runs more than once."""
    chosen: dict[object, AnySchedule] = {}
    for step in compiled.partition.steps:
        if isinstance(step, ProductStep):
            chosen[step] = TILE
        elif isinstance(step, Region):
            chosen[step] = _region(step, compiled, form)
    return chosen


def _region(step: Region, compiled: Compiled, form: str) -> Schedule:
    if not step.reduces and form == "single":
        return Schedule("flat", FLAT)
    if not step.reduces:
        return Schedule("tile", 16, ROWS) if step.rows else Schedule("flat", FLAT)
    if form == "persistent":
        return Schedule("persistent", power_of_two(compiled.symbols.hint(step.col_count)), ROWS)
    tile = max(16, power_of_two(compiled.symbols.hint(step.col_count) // MOST_TILES))
    if form == "split" and splittable(step):
        return Schedule("split", tile, chunks=4)
    return Schedule("looped", tile, 1 if form == "single" else ROWS)
