"""With which tile sizes and launch constants is a kernel tried?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["flat", "tile", "persistent", "looped", "split"]
PERSISTENT_LIMIT = 32768
"""Most elements that a program holds in registers: 64 of fp32 a thread at 16 warps."""


@dataclass(frozen=True)
class Schedule:
    """Constants of one kernel, and its form.

    `flat` has one index, `tile` rows and columns without reductions; `persistent` holds whole rows
    in registers, `looped` walks them tile by tile, `split` shares each row among several programs
    and finishes in a second kernel.
    """

    form: Form
    block_cols: int
    block_rows: int = 1
    num_warps: int = 4
    invariant_first: bool = False
    """Load what all rows share (weights) before the row itself."""
    chunks: int = 1
    """Programs a row under `split`."""

    @property
    def constants(self) -> dict[str, int]:
        """What stands in the launch, for people and certificates."""
        result = {"BLOCK_N": self.block_cols, "num_warps": self.num_warps}
        if self.block_rows > 1 or self.form == "tile":
            result["BLOCK_M"] = self.block_rows
        if self.invariant_first:
            result["weights_first"] = 1
        if self.form == "split":
            result["CHUNKS"] = self.chunks
        return result


def persistent_limit(schedule: Schedule) -> int:
    """Longest row that a persistent schedule takes where the length is free."""
    return max(schedule.block_cols, PERSISTENT_LIMIT // schedule.block_rows)


def long_rows(schedule: Schedule) -> Schedule:
    """The looped schedule that serves rows past that limit."""
    if schedule.block_rows > 16:
        return Schedule("looped", 32, schedule.block_rows, 4)
    return Schedule("looped", 4096, 1, 16)
