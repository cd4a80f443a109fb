"""With which tile sizes and launch constants is a kernel tried?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["flat", "tile", "persistent", "looped", "split"]


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
    num_stages: int = 2
    invariant_first: bool = False
    """Load what all rows share (weights) before the row itself."""
    chunks: int = 1
    """Programs a row under `split`."""

    @property
    def constants(self) -> dict[str, int]:
        """What stands in the launch, for people and certificates."""
        result = {"BLOCK_N": self.block_cols, "num_warps": self.num_warps}
        if self.block_rows > 1:
            result["BLOCK_M"] = self.block_rows
        if self.form in ("looped", "split"):
            result["num_stages"] = self.num_stages
        if self.form == "split":
            result["CHUNKS"] = self.chunks
        return result
