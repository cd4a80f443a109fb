"""Which schedules are not worth measuring, by what the cross-compiler says of them?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import CompileFailed, LoadFailed, RunFailed
from agentkernel.tools.compile.candidate import compile_many
from agentkernel.tools.problem.problems import LoadedProblem

CompileOutcome = CompileReport | CompileFailed | LoadFailed | RunFailed
BUDGET_SPENT = "the search's time was spent before its turn"
LOG_CHARS = 200


def compile_all(
    problem: LoadedProblem,
    sources: Sequence[str],
    target: Target,
    *,
    seconds: float,
    allow_unsandboxed: bool = False,
) -> tuple[CompileOutcome | None, ...]:
    """One outcome a source in the order given; None where `seconds` did not suffice."""
    return compile_many(
        problem, sources, target, seconds=seconds, allow_unsandboxed=allow_unsandboxed
    )


def prune(outcomes: Sequence[CompileOutcome | None]) -> tuple[str | None, ...]:
    """Why each source is out, None for those that stay.

    Out: what fails to load or compile, and what goes past the target's limits. What spills is out
    as long as something that does not spill remains.
    """
    reasons = [_unfit(item) for item in outcomes]
    spilled = [_spills(item) for item in outcomes]
    clean = any(
        reason is None and spill is None for reason, spill in zip(reasons, spilled, strict=True)
    )
    return tuple(
        reason or (spill if clean else None) for reason, spill in zip(reasons, spilled, strict=True)
    )


def _unfit(outcome: CompileOutcome | None) -> str | None:
    if outcome is None:
        return None
    if not isinstance(outcome, CompileReport):
        return f"{outcome.kind}: {last_line(outcome.log)}"
    for kernel in outcome.kernels:
        if not kernel.fits:
            return f"{kernel.name} does not fit: {(kernel.error or 'over the limits')[:LOG_CHARS]}"
    return None


def last_line(log: str) -> str:
    """Where a traceback names its exception."""
    lines = log.strip().splitlines()
    return lines[-1][:LOG_CHARS] if lines else ""


def _spills(outcome: CompileOutcome | None) -> str | None:
    if not isinstance(outcome, CompileReport):
        return None
    for kernel in outcome.kernels:
        if kernel.spill_bytes:
            return f"{kernel.name} spills {kernel.spill_bytes} bytes a thread"
    return None
