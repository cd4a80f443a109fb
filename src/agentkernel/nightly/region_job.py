"""Region jobs: verification of a known kernel, or the search for a new one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import HANDED_OVER
from agentkernel.domain.errors import ProblemError, SettingError
from agentkernel.domain.nightly import RegionStatus
from agentkernel.domain.region import Kernel
from agentkernel.domain.verdict import NOT_JUDGED, LoadFailed, RunFailed, Verdict
from agentkernel.nightly.library.library import now
from agentkernel.nightly.regions import region_problem
from agentkernel.nightly.scheduler.engine import device_of, gpu_of
from agentkernel.nightly.scheduler.jobs import KernelDone, KernelJob
from agentkernel.nightly.zoo.loader import load_model
from agentkernel.storage.files import make_folder
from agentkernel.swap.kernel import parameter_strides, strides_of
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.certificate.replay import replay_settings
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.targets import find_target
from agentkernel.workflows.events import ignore
from agentkernel.workflows.optimize import resume, resume_newest, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest

if TYPE_CHECKING:
    from agentkernel.nightly.regions import RegionCall

SPENT = 0.9
"""A search that took this share of its budget was ended by it."""


def verify_known_kernel(job: KernelJob, known: Kernel) -> KernelDone:
    """Judge a known kernel again on the region's problem; the same seeds, rule and policy."""
    broken = known.withdrawn or _mismatch(known)
    if broken:
        return KernelDone(status="withdrawn", reason=broken, kernel=known)
    resolved = find_target(job.settings.target)
    settings = replay_settings(
        known.certificate, resolved, allow_unsandboxed=job.settings.judge.allow_unsandboxed
    )
    problem = region_call(job).problem
    verdict = judge(problem, capture(problem), known.source, settings)
    if verdict.accepted:
        again = known.evolve(verified=now())
        return KernelDone(status="reused", reason="judged again", kernel=again, run=known.run)
    words = f"{verdict.answer}: {_failure(verdict)}"
    if _undecided(verdict):
        return KernelDone(status="failed", reason=verdict.undecided or f"{NOT_JUDGED}: {words}")
    return KernelDone(status="withdrawn", reason=f"does not verify any more: {words}", kernel=known)


def draft_kernel(job: KernelJob) -> KernelDone:
    """Search a kernel for the region, going on with the run that a kill left."""
    call = region_call(job)
    settings = job.settings.evolve(runs=job.runs)
    if job.budget_s is not None:
        budget = settings.budget.evolve(time_s=job.budget_s)
        settings = settings.evolve(budget=budget)
    request = OptimizeRequest(call.problem, settings, None, ("batch", job.use.path))
    result = _run(request, job.budget_s if job.again else None)
    limited = job.budget_s is not None and (
        result.ended_by_time or result.spent_s >= SPENT * job.budget_s
    )
    if result.interrupted:
        raise KeyboardInterrupt
    if result.status == "failed":
        return KernelDone(status="failed", reason=result.reason, run=result.run, limited=limited)
    why = baseline_reason(result, measurable=gpu_of(find_target(settings.target)) is not None)
    if why:
        return KernelDone(
            status="kept",
            reason=why,
            run=result.run,
            limited=limited,
            resumable=job.budget_s is not None and result.ended_by_time,
        )
    kernel = to_kernel(result, job, call)
    status: RegionStatus = "new" if job.parent is None else "retuned"
    return KernelDone(
        status=status, reason=result.reason, kernel=kernel, run=result.run, limited=limited
    )


def region_call(job: KernelJob) -> RegionCall:
    """The region as a problem. Raises ProblemError where the model has it no more."""
    loaded = load_model(job.part.zoo, job.part.model)
    device = device_of(find_target(job.settings.target))
    return region_problem(loaded, job.use.path, signature=job.region.signature, device=device)


def _run(request: OptimizeRequest, more_s: float | None) -> Result:
    """`more_s`: what a run that its budget ended gets on top."""
    folder = Path(request.settings.runs)
    make_folder(folder)

    def take_up(left: str) -> Result:
        with suppress(SettingError):  # a kill came between its end and the answer to the job
            return resume(left, ignore, more_s=more_s)
        return resume(left, ignore)

    return resume_newest(folder, take_up) or run(request, ignore)


def baseline_reason(result: Result, *, measurable: bool) -> str:
    """Why the baseline stays; "" where there is a kernel that is not slower."""
    if result.status not in HANDED_OVER or result.candidate is None:
        return result.reason
    if measurable and not result.measured:
        return f"it has no time: {result.reason}"
    time_us, eager_us = result.estimated_time_us, result.estimated_eager_us
    if result.measured:
        return ""
    if time_us is None or eager_us is None:
        return "its time could not be estimated"
    if time_us >= eager_us:
        return f"estimated {time_us:.2f} us against eager's {eager_us:.2f} us"
    return ""


def to_kernel(result: Result, job: KernelJob, call: RegionCall) -> Kernel:
    """What a run handed over. Raises ProblemError where its certificate does not carry it."""
    certificate = read_certificate(Path(result.certificate)) if result.certificate else None
    if certificate is None or certificate.candidate_source is None:
        raise ProblemError(
            f"Run {result.run!r} handed over a kernel, and its certificate {result.certificate!r} "
            "carries none. Next: start the night again."
        )

    ratios = (result.speedup_vs_eager, result.speedup_vs_compile, result.speedup_vs_autotune)
    known = [item for item in ratios if item is not None]
    times = (result.eager_us, result.compiled_us, result.autotuned_us)
    baselines = [item for item in times if item is not None]
    return Kernel(
        key=job.key_of_kernel,
        sha256=sha256_text(certificate.candidate_source),
        source=certificate.candidate_source,
        parameters=call.parameters,
        input_strides=strides_of(call.problem.live_inputs),
        parameter_strides=parameter_strides(call.problem.build(seed=0), call.parameters),
        arguments=call.arguments,
        returns=call.returns,
        certificate=certificate,
        run=result.run,
        created=certificate.created,
        basis="measured" if result.measured else "estimated",
        speedup=min(known) if known and result.measured else None,
        speedup_low=result.speedup_ci95[0] if result.speedup_ci95 else None,
        time_us=result.time_us if result.measured else result.estimated_time_us,
        baseline_us=min(baselines, default=None) if result.measured else result.estimated_eager_us,
        verified=now(),
    )


def _mismatch(kernel: Kernel) -> str:
    if sha256_text(kernel.source) != kernel.sha256:
        return "its source is not the one that was verified"
    if kernel.certificate.candidate_sha256 != kernel.sha256 or kernel.certificate.verdict is None:
        return "its certificate is of another text"
    return ""


def _failure(verdict: Verdict) -> str:
    return verdict.failure.kind if verdict.failure is not None else "no reason"


def _undecided(verdict: Verdict) -> bool:
    """True where the machine, not the kernel, kept it from being judged."""
    failure = verdict.failure
    late = isinstance(failure, LoadFailed | RunFailed) and failure.log.startswith("timeout: ")
    return late or bool(verdict.undecided)
