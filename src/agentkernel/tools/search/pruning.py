"""Which schedules are not worth measuring, by what the cross-compiler says of them?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import CompileFailed, LoadFailed, RunFailed
from agentkernel.tools.compile.candidate import compile_many
from agentkernel.tools.problems import LoadedProblem

CompileOutcome = CompileReport | CompileFailed | LoadFailed | RunFailed
Compile = Callable[[Sequence[str]], Sequence[CompileOutcome]]
BUDGET_SPENT = "the search's time was spent before its turn"
MANY_CORES = 8
CHUNK = 12
LOG_CHARS = 200


def compile_all(
    problem: LoadedProblem,
    sources: Sequence[str],
    target: Target,
    *,
    seconds: float,
    allow_unsandboxed: bool = False,
) -> tuple[CompileOutcome | None, ...]:
    """One outcome a source in the order given; None for those that `seconds` did not suffice for.

    With eight cores and more, several workers compile at once, each a part of the family.
    """

    def compile_part(part: Sequence[str]) -> Sequence[CompileOutcome]:
        return compile_many(problem, part, target, allow_unsandboxed=allow_unsandboxed)

    return compile_parts(sources, compile_part, parallel_workers(len(sources)), seconds)


def parallel_workers(count: int) -> int:
    """How many workers to compile `count` sources in: one below eight cores, then half of them."""
    cores = len(os.sched_getaffinity(0))
    return 1 if cores < MANY_CORES else max(1, min(cores // 2, count // 2, 8))


def compile_parts(
    sources: Sequence[str], compile_part: Compile, workers: int, seconds: float
) -> tuple[CompileOutcome | None, ...]:
    """Spread `sources` over `workers` threads in parts; no part begins after `seconds`."""
    size = CHUNK if workers == 1 else max(1, -(-len(sources) // workers))
    parts = [sources[begin : begin + size] for begin in range(0, len(sources), size)]
    end = time.monotonic() + seconds

    def run(part: Sequence[str]) -> Sequence[CompileOutcome | None]:
        return compile_part(part) if time.monotonic() < end else [None] * len(part)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return tuple(outcome for found in pool.map(run, parts) for outcome in found)


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
