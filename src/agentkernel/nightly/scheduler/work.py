"""How is one job of a night done, in a worker of its own?"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from datetime import UTC, datetime

from agentkernel.domain.errors import (
    AgentKernelError,
    EnvironmentFailure,
    OutputError,
    SettingError,
    UnknownTarget,
    one_line,
    raised_at,
)
from agentkernel.domain.target import Target
from agentkernel.nightly.scheduler.engine import GpuLost, gpu_is_lost
from agentkernel.nightly.scheduler.jobs import Answer, CutDone, CutJob, Job, JobFailed, KernelJob
from agentkernel.runtime import gate
from agentkernel.tools.targets import ResolvedTarget, find_target

STDOUT, STDERR = 1, 2
NOT_THE_JOBS = (EnvironmentFailure, OutputError, SettingError, UnknownTarget)
"""What the next job would meet as well: it ends the night, and the same call goes on."""


def run_job(job: Job) -> Answer:
    """The job's answer with the seconds it took; what breaks in it is an answer too. What the
    model prints goes to stderr.

    Raises GpuLost, and what is the machine's or the caller's.
    """
    began = time.monotonic()
    warnings.simplefilter("ignore")
    try:
        with printing_to_stderr():
            answer = _answer(job)
    except NOT_THE_JOBS:
        raise
    except AgentKernelError as error:
        answer = JobFailed(error=one_line(error))
    except Exception as error:
        if gpu_is_lost(error):
            raise GpuLost(one_line(error)) from error
        why = f"{type(error).__name__}: {one_line(error)} ({raised_at(error)})"
        answer = JobFailed(error=why)
    return answer.model_copy(update={"seconds": round(time.monotonic() - began, 3)})


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Stdout, of which every line is the command's own, is kept from a user's module. For the whole
    process, and the processes that it begins meanwhile."""
    sys.stdout.flush()
    with ExitStack() as restored:
        restored.enter_context(redirect_stdout(sys.stderr))
        with suppress(OSError):  # either is closed
            own = os.dup(STDOUT)
            restored.callback(os.close, own)
            os.dup2(STDERR, STDOUT)
            restored.callback(os.dup2, own, STDOUT)
        yield


def _answer(job: Job) -> Answer:
    from agentkernel.nightly import kernels, wholes

    match job:
        case CutJob():
            return cut(job)
        case KernelJob():
            return (
                kernels.draft_kernel(job)
                if job.known is None
                else kernels.verify_known_kernel(job, job.known)
            )
        case _:
            return wholes.end_to_end(job)


def cut(job: CutJob) -> CutDone:
    """Cut the model, timed where a GPU measures for the target."""
    from agentkernel.nightly.regions import cut_model
    from agentkernel.nightly.zoo.load import load_model

    resolved = find_target(job.target)
    loaded = load_model(job.part.zoo, job.part.model)
    with exclusive_on(resolved):
        found = cut_model(loaded, described(resolved), device=device_of(resolved))
    return CutDone(cut=found, gpu=gpu_of(resolved))


def device_of(resolved: ResolvedTarget) -> str:
    """Where models run here."""
    return "cuda" if gpu_of(resolved) is not None else "cpu"


def gpu_of(resolved: ResolvedTarget) -> str | None:
    """The GPU that measures here; None where nothing is measured."""
    return resolved.local.name if resolved.local is not None and resolved.measurable else None


def described(resolved: ResolvedTarget) -> Target:
    """The GPU that measures, else the target."""
    return resolved.measured_target or resolved.target


def exclusive_on(resolved: ResolvedTarget) -> AbstractContextManager[None]:
    """Around what times a model."""
    return nullcontext() if gpu_of(resolved) is None else gate.exclusive()


def now() -> str:
    """The time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
