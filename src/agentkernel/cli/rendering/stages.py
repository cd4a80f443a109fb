"""Seconds of a run by stage, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from agentkernel.runtime.stages import StageTime


def stage_table(times: Sequence[StageTime], wall_s: float) -> Table:
    """One line a stage, their sum beside the wall time, then what worked meanwhile."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("stage", "s", "share"):
        shown.add_column(heading, justify="left" if heading == "stage" else "right")
    own = [item for item in times if not item.overlapped]
    for item in own:
        shown.add_row(item.stage, f"{item.seconds:.2f}", f"{item.seconds / wall_s:.0%}")
    total = sum(item.seconds for item in own)
    shown.add_row("in all", f"{total:.2f}", f"of {wall_s:.2f}")
    for item in times:
        if item.overlapped:
            shown.add_row(item.stage, f"{item.seconds:.2f}", "overlapped")
    return shown
