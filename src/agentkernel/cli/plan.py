"""`agentkernel plan` and `targets`: the headroom of a problem, and the known GPUs.

`plan` drafts and runs nothing; every figure is an estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.cli.options import AsJson, Init, Inputs, Kwargs, Reference, TargetName

if TYPE_CHECKING:
    from agentkernel.domain.plan import Analysis
    from agentkernel.domain.profile import Estimate
    from agentkernel.domain.target import Target


def plan(
    reference: Reference,
    inputs: Inputs = None,
    init: Init = "",
    kwargs: Kwargs = "",
    target: TargetName = None,
    as_json: AsJson = False,
) -> None:
    """Analyse a problem and its headroom; draft and run nothing. Every figure is an estimate."""
    from agentkernel.agents.compiler_coder import coverage
    from agentkernel.cli.terminal import console, print_json
    from agentkernel.tools.problem.capture import capture
    from agentkernel.tools.problem.loading import load_problem
    from agentkernel.tools.roofline.model import analyse, estimate_eager, slowest_eager_us
    from agentkernel.tools.targets import find_target

    resolved = find_target(target)
    loaded = load_problem(reference, inputs or (), init, kwargs)
    captured = capture(loaded)
    covered = coverage(loaded, captured)
    analysis = analyse(captured, resolved.target).evolve(
        patterns=covered.patterns, uncovered=covered.uncovered
    )
    eager = estimate_eager(captured, resolved.target)
    slowest = slowest_eager_us(captured, resolved.target)
    if as_json:
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
            }
        )
        return
    screen = console()
    screen.print(f"{loaded.problem.name} for {resolved.target.title}: {resolved.note}")
    for shapes in loaded.problem.shape_sets:
        screen.print(f"inputs       {shapes.label}")
    for line in plan_lines(analysis, eager, slowest):
        screen.print(line)


def headroom(analysis: Analysis, eager: Estimate) -> float:
    """Share of eager's estimated time that the roofline does not need, 0 to 1."""
    return max(0.0, 1.0 - analysis.bound_us / eager.time_us) if eager.time_us else 0.0


def plan_lines(analysis: Analysis, eager: Estimate, slowest_us: float) -> list[str]:
    """The analysis for people. `slowest_us`: eager's time where its operators are as far above
    their estimates as such were when they were measured."""
    from agentkernel.cli.rendering.text import show_bytes, show_share, show_us

    time = show_us(eager.time_us)
    if slowest_us > eager.time_us:
        time += f" to {show_us(slowest_us)}"
    ops = ", ".join(f"{name} x{count}" for name, count in sorted(analysis.op_counts.items()))
    return [
        f"bound by     {analysis.roofline}: {show_bytes(analysis.bytes_min)}, "
        f"{analysis.flops / 1e9:.3g} GFLOP at least",
        f"roofline     {show_us(analysis.bound_us)} (estimated)",
        f"eager        {time} (estimated), "
        f"headroom at least {show_share(headroom(analysis, eager))}",
        f"operations   {ops}",
        f"templates    {', '.join(analysis.patterns) or 'none'}",
        f"not covered  {', '.join(analysis.uncovered) or 'nothing'}",
    ]


def targets(as_json: AsJson = False) -> None:
    """List the GPUs that kernels can be made for."""
    from agentkernel.cli.terminal import console, print_json
    from agentkernel.tools.targets import load_targets

    known = load_targets()
    if as_json:
        print_json([target.model_dump(mode="json") for target in known.values()])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("target")
    table.add_column("GPU")
    for heading in ("arch", "SMs", "GB/s", "L2 MB", "fp32", "tf32", "bf16", "fp8"):
        table.add_column(heading, justify="right")
    for target in known.values():
        table.add_row(*row(target))
    console().print(table)
    console().print("Peaks in dense TFLOP/s. Each constant's source: agentkernel targets --json")


def row(target: Target) -> list[str]:
    """One line of the table."""
    names = ", ".join((target.name, *target.aliases))
    arch = target.arch if target.vendor == "amd" else f"sm_{target.arch}"
    peaks = [target.peak_tflops.get(key) for key in ("fp32", "tf32", "bf16", "fp8")]
    return [
        names,
        target.title,
        arch,
        f"{target.sm_count.value:g}",
        f"{target.dram_gb_per_s.value:g}",
        f"{target.l2_mb.value:g}",
        *("-" if peak is None else f"{peak.value:g}" for peak in peaks),
    ]
