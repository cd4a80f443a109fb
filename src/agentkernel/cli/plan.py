"""`agentkernel plan`: the headroom of a problem.

Nothing is drafted and nothing is run; every figure is an estimate.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.cli.candidate import load_subject
from agentkernel.cli.console import console
from agentkernel.cli.options import PlanFlags
from agentkernel.cli.rendering.text import show_bytes, show_share, show_us
from agentkernel.cli.terminal import print_json
from agentkernel.compiler.partitions import coverage
from agentkernel.compiler.segments import segment_lines, segment_picture
from agentkernel.domain.errors import OutputError
from agentkernel.storage.files import explain_write_failure, write_atomic
from agentkernel.tools.judge.reference.rehearsal import capture_checked
from agentkernel.tools.roofline.model import (
    analyse,
    estimate_eager,
    least_estimate_us,
    slowest_eager_us,
)
from agentkernel.tools.targets import find_target

if TYPE_CHECKING:
    from agentkernel.domain.plan import Analysis
    from agentkernel.domain.profile import Estimate


def plan(flags: PlanFlags) -> None:
    """`agentkernel plan`."""
    resolved = find_target(flags.target)
    loaded = load_subject(flags.subject)
    captured = capture_checked(loaded)
    covered = coverage(loaded, captured)
    cut = covered.segments
    if flags.picture is not None:
        _draw(flags.picture, segment_picture(f"{loaded.problem.name}, {CUT}", cut))
    analysis = analyse(captured, resolved.target).evolve(
        patterns=covered.patterns, uncovered=covered.uncovered
    )
    eager = estimate_eager(captured, resolved.target)
    slowest = slowest_eager_us(captured, resolved.target)
    if flags.as_json:
        print_json(
            {
                "problem": loaded.problem.name,
                "target": resolved.target.name,
                "note": resolved.note,
                "measured": False,
                "analysis": analysis.model_dump(mode="json"),
                "estimated_eager": eager.model_dump(mode="json"),
                "estimated_eager_at_most_us": slowest,
                "estimated_headroom": headroom(analysis, eager),
                "segments": [item._asdict() for item in cut],
            }
        )
        return
    screen = console()
    screen.print(f"{loaded.problem.name} for {resolved.target.title}: {resolved.note}")
    for shapes in loaded.problem.shape_sets:
        screen.print(f"inputs       {shapes.label}")
    for line in plan_lines(analysis, eager, slowest):
        screen.print(line)
    for line in segment_lines(cut):
        screen.print(line)
    if flags.picture is not None:
        screen.print(f"picture      {flags.picture}")


CUT = "cut into segments"
PICTURE = "--picture"


def _draw(path: Path, picture: str) -> None:
    """Write the picture; another file of that name stays. Raises OutputError."""
    with explain_write_failure(path, PICTURE):
        known = path.read_text("utf-8", "replace")[:400] if path.is_file() else ""
        there = path.exists()
    if there and not (known.startswith("<svg") and CUT in known):
        raise OutputError(
            f"{path} exists and is no picture of segments. Expected a new name. "
            f"Next: give {PICTURE} another one."
        )
    write_atomic(path, picture, PICTURE)


def headroom(analysis: Analysis, eager: Estimate) -> float:
    """Share of eager's estimated time that one launch at the roofline does not need, 0 to 1."""
    least_us = least_estimate_us(analysis)
    return max(0.0, 1.0 - least_us / eager.time_us) if eager.time_us else 0.0


def plan_lines(analysis: Analysis, eager: Estimate, slowest_us: float) -> list[str]:
    """The analysis for people. `slowest_us`: eager's time where its operators are as far above
    their estimates as such were when they were measured."""
    time = show_us(eager.time_us)
    if slowest_us > eager.time_us:
        time += f" to {show_us(slowest_us)}"
    ops = ", ".join(f"{name} x{count}" for name, count in sorted(analysis.op_counts.items()))
    return [
        f"bound by     {analysis.roofline}: {show_bytes(analysis.bytes_min)}, "
        f"{analysis.flops / 1e9:.3g} GFLOP at least",
        f"roofline     {show_us(analysis.bound_us)} (estimated), "
        f"{show_us(least_estimate_us(analysis))} with one launch",
        f"eager        {time} (estimated), "
        f"headroom at least {show_share(headroom(analysis, eager))}",
        f"operations   {ops}",
        f"kernels      {', '.join(analysis.patterns) or 'none'}",
        f"library      {', '.join(analysis.uncovered) or 'nothing'}",
    ]
