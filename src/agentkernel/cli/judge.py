"""`agentkernel judge`, `profile` and `verify`: correctness, speed, certificates.

`judge` exits 0 for accepted and 3 for rejected; `verify` checks a certificate and replays its
judgement, 0 where it holds, else 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    Unpickle,
)
from agentkernel.domain.plain_text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentkernel.cli.candidate import LoadedCandidate
    from agentkernel.domain.profile import Measurement, Profile
    from agentkernel.domain.verdict import Verdict
    from agentkernel.tools.certificate.replay import Replay


CandidateFile = Annotated[Path, typer.Option("--candidate", help="The file that defines ModelNew.")]
Static = Annotated[
    bool,
    typer.Option("--static/--no-static", help="Read the source first, or only see what it does."),
]
Sanitize = Annotated[
    bool,
    typer.Option("--sanitize/--no-sanitize", help="Ask compute-sanitizer too, where installed."),
]


Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Of what is asked: repeats a judgement; else a fresh one."),
]
DeclaredSizes = Annotated[
    bool,
    typer.Option(
        "--declared-sizes", help="It need hold for the declared sizes only, and raise at others."
    ),
]


def judge(
    reference: Reference,
    candidate: CandidateFile,
    inputs: Inputs = None,
    init: Init = "",
    kwargs: Kwargs = "",
    target: TargetName = None,
    precision: PrecisionName = None,
    policy: PolicyName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    static: Static = True,
    sanitize: Sanitize = False,
    declared_sizes: DeclaredSizes = False,
    seed: Seed = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Judge a candidate against its module; exit 0 accepted, 3 rejected."""
    from agentkernel.cli.candidate import load_candidate
    from agentkernel.cli.terminal import console, print_json

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
            "goals.policy": policy or "triton",
            "judge.allow_unsandboxed": allow_unsandboxed or None,
            "judge.seed": seed,
        },
    )
    verdict = find_verdict(bench, static=static, sanitize=sanitize, declared_sizes=declared_sizes)
    if as_json:
        print_json(verdict)
    else:
        screen = console()
        screen.print(f"{bench.loaded.problem.name} on {verdict.device}: {bench.resolved.note}")
        for line in verdict_lines(verdict):
            screen.print(line, markup=False)
    raise typer.Exit(0 if verdict.accepted else 3)


def find_verdict(
    bench: LoadedCandidate, *, static: bool, sanitize: bool, declared_sizes: bool = False
) -> Verdict:
    """The judge's finding, with compute-sanitizer's where it is asked for."""
    from agentkernel.tools.judge.judge import judge as run_judge
    from agentkernel.workflows.run_factory import judge_settings

    settings = judge_settings(bench.settings, bench.resolved)
    settings = settings.evolve(static=static, declared_sizes=declared_sizes)
    verdict = run_judge(bench.loaded, bench.captured, bench.source, settings)
    if not sanitize:
        return verdict
    from agentkernel.tools.judge.compute_sanitizer import with_sanitizer_findings

    return with_sanitizer_findings(verdict, bench.loaded, bench.captured, bench.source, settings)


def verdict_lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what was found, in how many cases, how far from fp64."""
    from agentkernel.cli.rendering.text import show_error, show_span

    how = " (interpreted: no GPU ran it)" if verdict.interpreted else ""
    head = "accepted" if verdict.accepted else f"rejected at the gate {verdict.gate!r}"
    lines = [f"{head}{how}", f"policy {verdict.policy}, precision {verdict.precision}"]
    if verdict.failure is not None:
        values = verdict.failure.model_dump(exclude={"kind"})
        if verdict.failure.kind == "mismatch":
            lines.append(f"  {verdict.failure.decisive}")
        lines += [f"  {key}: {value}" for key, value in values.items() if value is not None]
    if verdict.cases:
        passed = sum(case.passed for case in verdict.cases)
        lines.append(
            f"{passed} of {len(verdict.cases)} cases passed; error against fp64 "
            f"{show_error(verdict.worst_error)} (eager {show_error(verdict.worst_eager_error)})"
        )
        if verdict.margin_text:
            lines.append(f"{verdict.margin_text}, by version {verdict.rule} of the precision rule")
    if verdict.launches:
        lines.append(f"launched: {', '.join(verdict.launches)}")
    if verdict.repeatable is not None:
        lines.append(f"the same call twice: {'the same' if verdict.repeatable else 'other'} bits")
    if verdict.declared_sizes:
        lines.append(
            "for the declared sizes only: at others that were asked it raised or was right"
        )
    if verdict.eval_only:
        lines.append("for eval mode only: in training mode it raises")
    lines += list(verdict.notes)
    sandbox = verdict.sandbox or "none needed"
    lines.append(f"sandbox {sandbox}, seed {verdict.seed}, {show_span(verdict.seconds)}")
    # What a candidate words itself begins no line that could be the judge's.
    return [plain(line).replace("\n", "\n    ") for line in lines]


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
    from agentkernel.cli.candidate import load_candidate
    from agentkernel.cli.terminal import console, print_json
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

    from agentkernel.cli.rendering.run import resources
    from agentkernel.cli.rendering.text import show_bytes, show_us

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
    from agentkernel.cli.rendering.text import show_bytes, show_share, show_us
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


EXIT_BROKEN, EXIT_UNDECIDED = 3, 4
NOT_TIMED = "but its measured times were not replayed"
CertificateFile = Annotated[
    Path, typer.Argument(metavar="CERTIFICATE", help="The certificate.json of a run.")
]
NoReplay = Annotated[
    bool, typer.Option("--no-replay", help="Check signature and hashes; execute nothing.")
]
KnownSigner = Annotated[
    bool, typer.Option("--known-signer", help="Exit 3 too where the signer is not known here.")
]


def verify(
    certificate: CertificateFile,
    no_replay: NoReplay = False,
    known_signer: KnownSigner = False,
    unpickle: Unpickle = False,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate and replay its judgement; exit 0 it holds, 3 it does not."""
    from agentkernel.cli.terminal import console, print_json
    from agentkernel.tools.certificate.replay import inspect_certificate, replay

    if no_replay:
        _, found = inspect_certificate(certificate)
    else:
        found = replay(certificate, allow_unsandboxed=allow_unsandboxed, unpickle=unpickle)
    code = exit_code(found, known_signer=known_signer)
    if as_json:
        print_json({"holds": code == 0, **found.model_dump(mode="json")})
    else:
        screen = console()
        for line in replay_lines(found, replayed=not no_replay):
            screen.print(line, markup=False)
        screen.print(_ending(found, code))
    raise typer.Exit(code)


def _ending(found: Replay, code: int) -> str:
    from agentkernel.tools.certificate.replay import UNSIGNED

    if code == 0:
        return f"holds, {NOT_TIMED}" if found.times_replayed is False else "holds"
    if code == EXIT_UNDECIDED:
        return "not decided here"
    return UNSIGNED if found.signature == "absent" and found.fits else "does not hold"


def exit_code(found: Replay, *, known_signer: bool) -> int:
    """3 outweighs 4: what was edited, or has no signature, is so on any machine."""
    if not found.holds or (known_signer and not found.signer_known):
        return EXIT_BROKEN
    return EXIT_UNDECIDED if found.undecided else 0


def replay_lines(found: Replay, *, replayed: bool) -> list[str]:
    """For people: who signed it, what was edited, what came out differently."""

    lines = []
    if found.status:
        name = (found.candidate or "none")[:10]
        lines.append(f"{found.problem}: {found.status}, candidate {name}, run {found.run}")
    lines.append(_signature_line(found))
    lines += [f"edited: {item} does not fit" for item in found.edited]
    if found.nothing:
        lines.append(f"nothing to replay: {found.nothing}")
    elif found.edited or not replayed:
        lines.append("not replayed")
    if found.verdict is not None:
        lines.append(f"replayed on {found.verdict.device}:")
        lines += [f"  {line}" for line in verdict_lines(found.verdict)]
        for item in found.differences:
            mark = "  <- decides" if item.decisive else ""
            lines.append(f"differs: {item.what}: {item.then} then, {item.now} now{mark}")
        if not found.differences:
            untimed = found.times_replayed is False
            lines.append(f"nothing differs, {NOT_TIMED}" if untimed else "nothing differs")
    if found.undecided:
        lines.append(f"not decided: {found.undecided}")
    # A name in the file begins no line of its own.
    return [line.replace("\n", "\n    ") for line in lines]


def _signature_line(found: Replay) -> str:
    signer = f"{(found.signer or 'nobody')[:16]}"
    if found.signature == "absent":
        return f"not signed{f': {found.unsigned}' if found.unsigned else ''}"
    if found.signature == "invalid":
        return f"signature invalid: the file was edited after {signer} signed it"
    known = "a key known here" if found.signer_known else "a key not known here"
    return f"signature valid: signed by {known} ({signer})"
