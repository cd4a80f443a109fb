"""`agentkernel judge`: is this candidate right?"""

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
)
from agentkernel.domain.plain_text import plain

if TYPE_CHECKING:
    from agentkernel.cli.bench_command import LoadedCandidate
    from agentkernel.domain.verdict import Verdict

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
    from agentkernel.cli.bench_command import load_candidate
    from agentkernel.cli.output import console, print_json

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
    from agentkernel.workflows.workshop import judge_settings

    asked = {"static": static, "declared_sizes": declared_sizes}
    settings = judge_settings(bench.settings, bench.resolved).model_copy(update=asked)
    verdict = run_judge(bench.loaded, bench.captured, bench.source, settings)
    if not sanitize:
        return verdict
    from agentkernel.tools.judge.sanitize import with_sanitizer_findings

    return with_sanitizer_findings(verdict, bench.loaded, bench.captured, bench.source, settings)


def verdict_lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what was found, in how many cases, how far from fp64."""
    from agentkernel.cli.rendering.quantities import show_error, show_span

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
