"""What can be said about a candidate's speed without running it?"""

from __future__ import annotations

from typing import NamedTuple

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import CompileReport, Estimate, ProfileFailed
from agentkernel.domain.rules import Precision
from agentkernel.domain.target import Target
from agentkernel.tools.compile.candidate import compile_candidate
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.roofline.roofline import analyse, estimate, estimate_eager


class CandidateEstimate(NamedTuple):
    """The compile report with the estimates that rest on it. `failed` where the kernels do not
    compile for the target; the estimate is then the roofline bound itself."""

    analysis: Analysis
    report: CompileReport | None
    candidate: Estimate
    eager: Estimate
    failed: ProfileFailed | None = None


def estimate_candidate(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    target: Target,
    *,
    precision: Precision = "strict",
    allow_unsandboxed: bool = False,
    written: Captured | None = None,
) -> CandidateEstimate:
    """Cross-compile `source` for `target` at the first shape set's sizes and estimate its time.

    `written`: the graph that the source was written from, where that is not `captured`: its
    operations are then the candidate's.
    """
    analysis = analyse(written or captured, target, precision)
    eager = estimate_eager(captured, target, precision)
    report = compile_candidate(loaded, source, target, allow_unsandboxed=allow_unsandboxed)
    if isinstance(report, CompileReport):
        return CandidateEstimate(analysis, report, estimate(report, analysis, target), eager)
    failed = ProfileFailed(side="candidate", reason=report.kind, log=report.log)
    return CandidateEstimate(analysis, None, _bound(analysis, target), eager, failed)


def _bound(analysis: Analysis, target: Target) -> Estimate:
    return Estimate(
        target=target.name,
        time_us=analysis.bound_us,
        bytes_moved=analysis.bytes_min,
        flops=analysis.flops,
        bound=analysis.roofline,
        assumptions=("no compile report: the roofline bound itself", *analysis.assumptions),
    )
