"""Does the table of a run's stages add up, and tell apart what overlaps?"""

from __future__ import annotations

import io

from rich.console import Console

from agentkernel.cli.rendering.stages import stage_table
from agentkernel.runtime.stages import StageTime


def test_stages_their_sum_and_what_overlaps() -> None:
    times = (
        StageTime(stage="capture", seconds=1.0),
        StageTime(stage="search", seconds=3.0),
        StageTime(stage="max-autotune", seconds=50.0, overlapped=True),
    )
    screen = Console(width=80, record=True, file=io.StringIO())
    screen.print(stage_table(times, 4.0))
    lines = [line.split() for line in screen.export_text().splitlines()]
    assert lines[1:] == [
        ["capture", "1.00", "25%"],
        ["search", "3.00", "75%"],
        ["in", "all", "4.00", "of", "4.00"],
        ["max-autotune", "50.00", "overlapped"],
    ]
