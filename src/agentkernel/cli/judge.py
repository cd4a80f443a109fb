"""`agentkernel judge` and `profile`: correctness and speed of a candidate.

`judge` exits 0 for accepted, 3 for rejected, and 4 where this machine could not decide it, as
`verify` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agentkernel.cli.candidate import LoadedCandidate, open_candidate
from agentkernel.cli.console import console
from agentkernel.cli.options import (
    JudgeFlags,
    ProfileFlags,
    settings_of,
)
from agentkernel.cli.rendering.live import counting
from agentkernel.cli.rendering.verdict import print_verdict, profile_parts
from agentkernel.cli.terminal import print_json
from agentkernel.cli.verify import EXIT_BROKEN, EXIT_UNDECIDED
from agentkernel.domain.errors import SettingError
from agentkernel.domain.profile import ProfileFailed
from agentkernel.tools.judge.compute_sanitizer import with_sanitizer_findings

if TYPE_CHECKING:
    from agentkernel.domain.verdict import Verdict


def judge(flags: JudgeFlags) -> None:
    """`agentkernel judge`."""
    values = {
        **settings_of(flags),
        "judge.seed": flags.seed,
        "remote": flags.remote,
    }
    with (
        counting("judge", silent=flags.as_json),
        open_candidate(flags.subject, flags.candidate, flags.settings, values) as bench,
    ):
        verdict = find_verdict(
            bench, static=flags.static, sanitize=flags.sanitize, declared_sizes=flags.declared_sizes
        )
    if flags.as_json:
        print_json(verdict)
    else:
        screen = console()
        screen.print(f"{bench.loaded.problem.name} on {verdict.device}: {bench.resolved.note}")
        print_verdict(verdict, screen)
    raise typer.Exit(refusal_code(verdict))


def find_verdict(
    bench: LoadedCandidate, *, static: bool, sanitize: bool, declared_sizes: bool = False
) -> Verdict:
    """The judge's finding, with compute-sanitizer's where it is asked for."""
    if sanitize and bench.there is not None:
        raise SettingError(
            "--sanitize asks the compute-sanitizer of this machine, and --remote judges on another "
            "one. Expected one of the two. Next: leave one out."
        )
    settings = bench.judging.evolve(static=static, declared_sizes=declared_sizes)
    verdict = bench.judge(settings)
    if not sanitize:
        return verdict

    return with_sanitizer_findings(verdict, bench.loaded, bench.captured, bench.source, settings)


def refusal_code(verdict: Verdict) -> int:
    """0 for accepted; whoever could not be judged here is not rejected."""
    if verdict.accepted:
        return 0
    return EXIT_UNDECIDED if verdict.undecided else EXIT_BROKEN


def profile(flags: ProfileFlags) -> None:
    """`agentkernel profile`."""
    values = {**settings_of(flags), "remote": flags.remote}
    with (
        counting("profile", silent=flags.as_json),
        open_candidate(flags.subject, flags.candidate, flags.settings, values) as bench,
    ):
        verdict = bench.judge(bench.judging)
        found = bench.profile() if verdict.accepted else None
    if flags.as_json:
        shown = None if found is None else found.model_dump(mode="json")
        print_json({"verdict": verdict.model_dump(mode="json"), "profile": shown})
    else:
        screen = console()
        screen.print(f"{bench.loaded.problem.name}: {bench.resolved.note}")
        print_verdict(verdict, screen)
        if isinstance(found, ProfileFailed):
            screen.print(f"not profiled: {found.side}: {found.reason}", markup=False)
        elif found is not None:
            for part in profile_parts(found):
                screen.print(part)
    raise typer.Exit(
        refusal_code(verdict) if found is None else 1 if isinstance(found, ProfileFailed) else 0
    )
