"""`agentkernel targets`: the known GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from agentkernel.cli.console import console
from agentkernel.cli.options import TargetsFlags
from agentkernel.cli.terminal import print_json
from agentkernel.tools.targets import load_targets

if TYPE_CHECKING:
    from agentkernel.domain.target import Target


def targets(flags: TargetsFlags) -> None:
    """`agentkernel targets`."""
    known = load_targets()
    if flags.as_json:
        print_json([target.model_dump(mode="json") for target in known.values()])
        return

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
