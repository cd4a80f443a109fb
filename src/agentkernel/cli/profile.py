"""`agentkernel profile`: how fast is this candidate?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agentkernel.cli.judge import CandidateFile
from agentkernel.cli.options import (
    AllowUnsandboxed,
    AsJson,
    ConfigFile,
    Init,
    Inputs,
    Kwargs,
    Overrides,
    PolicyName,
    PrecisionName,
    Reference,
    TargetName,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentkernel.domain.profile import Measurement, Profile


def profile(
    reference: Reference,
    candidate: CandidateFile,
    inputs: Inputs = None,
    init: Init = "",
    kwargs: Kwargs = "",
    target: TargetName = None,
    precision: PrecisionName = None,
    policy: PolicyName = "any",
    overrides: Overrides = None,
    config: ConfigFile = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Judge a candidate, then time it against eager and torch.compile, or estimate it."""
    from agentkernel.cli.bench_command import load_candidate
    from agentkernel.cli.judge import verdict_lines
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.profile import ProfileFailed

    bench = load_candidate(
        reference,
        candidate,
        inputs=inputs or (),
        init=init,
        kwargs=kwargs,
        overrides=overrides or (),
        config=config,
        flags={
            "target": target,
            "goals.precision": precision,
            "goals.policy": policy,
            "judge.allow_unsandboxed": allow_unsandboxed or None,
        },
    )
    verdict = bench.judge()
    found = bench.profile() if verdict.accepted else None
    if as_json:
        values = None if found is None else found.model_dump(mode="json")
        print_json({"verdict": verdict.model_dump(mode="json"), "profile": values})
    else:
        screen = console()
        screen.print(f"{bench.loaded.problem.name}: {bench.resolved.note}")
        for line in verdict_lines(verdict):
            screen.print(line, markup=False)
        if isinstance(found, ProfileFailed):
            screen.print(f"not profiled: {found.side}: {found.reason}", markup=False)
        elif found is not None:
            for part in profile_parts(found):
                screen.print(part)
    raise typer.Exit(3 if found is None else 1 if isinstance(found, ProfileFailed) else 0)


def profile_parts(profile: Profile) -> list[RenderableType]:
    """The kernels' resources, then what was measured or else estimated."""
    from rich.text import Text

    from agentkernel.cli.rendering.panel import resources
    from agentkernel.cli.rendering.quantities import show_bytes, show_us

    parts = resources(profile)
    estimate = profile.estimate
    lines = ["", *(line for item in profile.measurements for line in measured_lines(item))]
    lines.append(
        f"{show_us(estimate.time_us)} (estimated, {estimate.target}): "
        f"{show_bytes(estimate.bytes_moved)}, {estimate.flops / 1e9:.3g} GFLOP, {estimate.bound}"
    )
    lines += [f"  {item}" for item in estimate.assumptions]
    return [*parts, Text("\n".join(lines))]


def measured_lines(item: Measurement) -> list[str]:
    """One shape set on a GPU."""
    from agentkernel.cli.rendering.quantities import show_bytes, show_share, show_us
    from agentkernel.domain.profile import unmeasured_words

    ratio = item.vs_eager
    lines = [
        f"{item.shapes} on {item.gpu.name} (measured)",
        f"  candidate {show_us(item.candidate.median_us)}, eager {show_us(item.eager.median_us)}: "
        f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]",
    ]
    if item.compiled is not None and item.vs_compile is not None:
        ratio = item.vs_compile
        lines.append(
            f"  torch.compile {show_us(item.compiled.median_us)}: "
            f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
    if item.autotuned is not None and item.vs_autotune is not None:
        ratio = item.vs_autotune
        lines.append(
            f"  max-autotune {show_us(item.autotuned.median_us)}: "
            f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
    elif item.autotune_error is not None:
        lines.append(f"  max-autotune {unmeasured_words(item.autotune_error)}")
    if item.baselines_matmul != "highest":
        lines.append(f"  the baselines with float32_matmul_precision {item.baselines_matmul!r}")
    lines.append(
        f"  {item.achieved_gb_per_s:.0f} GB/s of {item.copy_gb_per_s:.0f} (copy), "
        f"{item.achieved_tflops:.1f} TFLOP/s, {show_share(item.roofline_fraction)} of the roofline"
    )
    lines.append(
        f"  {item.launches} launches, peak {show_bytes(item.peak_memory_bytes)} "
        f"(eager {show_bytes(item.eager_peak_memory_bytes)})"
    )
    return lines
