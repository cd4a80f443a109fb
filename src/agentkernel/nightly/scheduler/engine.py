"""Local engine: jobs in worker processes of this machine, surviving a lost process or GPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentkernel.domain.errors import (
    AgentKernelError,
    EnvironmentFailure,
    MissingDependency,
    OutputError,
    SettingError,
    UnknownTarget,
    one_line,
    raised_at,
)
from agentkernel.domain.target import Target
from agentkernel.nightly.regions import cut_model
from agentkernel.nightly.scheduler.jobs import Answer, CutDone, CutJob, Job, JobFailed, KernelJob
from agentkernel.nightly.zoo.loader import load_model
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.machine import CPU
from agentkernel.runtime.pool import JobResult, run_jobs
from agentkernel.tools.targets import ResolvedTarget, find_target

AGAIN = 2
"""So often is a job done again whose worker was lost: more is the job's own fault."""
SLACK, GRACE_S = 3.0, 600.0
"""What takes longer than so many budgets, and so many seconds, hangs."""
ESTIMATED_GRACE_S = 240.0
"""Where nothing is compiled for a GPU here and nothing timed, an interpreted judgement is all that
may follow on the budget's end."""
HANG_S = 3600.0
"""What has no budget of its own hangs after so many seconds."""
PROBE_TIMEOUT_S = 120.0
GPU_LOST = (
    "cuda error",
    "acceleratorerror",
    "cudnn_status_execution_failed",
    "device lost",
    "ecc error",
    "no cuda gpus are available",
    "nvml",
)
"""In what an error says, where the GPU's state is not to be trusted any more."""
Work = Callable[[Job], Answer]


class GpuLost(RuntimeError):
    """The GPU did not answer, or not as it should: another process, or another GPU, may do it."""


class JobSource(Protocol):
    """What an engine asks for work, and tells of it. Nobody else is told, and one at a time."""

    def take(self) -> Job | None:
        """The next job; None where there is none before another one has ended."""

    def done(self, job: Job, answer: Answer) -> None:
        """It is answered."""

    def lost(self, job: Job, why: str, again: int) -> None:
        """Its worker was lost; it begins for the `again`-th time once more."""


class Engine(Protocol):
    """What does jobs until there are none."""

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        ...

    def run(self, jobs: JobSource, work: Work) -> None:
        """Do all jobs. Raises EnvironmentFailure where nothing is left that could do them."""


@dataclass
class LossCounter:
    """How often a job may lose its worker."""

    counts: Counter[str] = field(default_factory=Counter)
    again: deque[Job] = field(default_factory=deque)

    def lost(self, jobs: JobSource, job: Job, why: str) -> None:
        """Do it again, or make the loss its answer."""
        self.counts[job.key] += 1
        if self.counts[job.key] > AGAIN:
            jobs.done(job, JobFailed(error=f"{why}, {self.counts[job.key]} times"))
            return
        jobs.lost(job, why, self.counts[job.key])
        self.again.append(job)


def gpu_is_lost(error: BaseException) -> bool:
    """True where an error says that the GPU, not the job, is at fault."""
    told = f"{type(error).__name__} {error}".lower()
    return any(word in told for word in GPU_LOST)


def device_answers(device: str) -> bool:
    """True where a new process can use the GPU; always on the CPU."""
    if device == CPU:
        return True
    code = "import torch; torch.ones(8, device='cuda').sum().item()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": device},
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def hang_limit_s(job: Job) -> float:
    """After how many seconds a job's process is ended."""
    if isinstance(job, KernelJob) and job.budget_s is not None:
        estimated = job.key_of_kernel.gpu.startswith("estimated:")
        return SLACK * job.budget_s + (ESTIMATED_GRACE_S if estimated else GRACE_S)
    return HANG_S


@dataclass(frozen=True)
class LocalEngine:
    """Processes of this machine: `lanes` a device, one job each at a time."""

    devices: Sequence[str]
    locks: Path
    lanes: int = 1
    answers: Callable[[str], bool] = device_answers
    limit_s: Callable[[Job], float] = hang_limit_s

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        return len(self.devices) * self.lanes

    def run(self, jobs: JobSource, work: Work) -> None:
        """Do all jobs. What the machine lacks, and an interruption, is raised."""
        patience = LossCounter()

        def take() -> Job | None:
            return patience.again.popleft() if patience.again else jobs.take()

        results = run_jobs(
            take,
            work,
            tuple(self.devices) * self.lanes,
            self.locks,
            limit_s=self.limit_s,
            keep=_keeps,
            usable=self.answers,
        )
        with closing(results):
            for ended in results:
                self._settle(jobs, patience, ended)
        if patience.again or jobs.take() is not None:
            raise MissingDependency(
                f"None of the devices {', '.join(self.devices)} answers any more. Expected one "
                "that does. Next: look at 'nvidia-smi', then give the same command: it goes on."
            )

    def _settle(
        self, jobs: JobSource, patience: LossCounter, ended: JobResult[Job, Answer]
    ) -> None:
        if ended.answer is not None:
            jobs.done(ended.job, ended.answer)
        elif ended.hung:  # it would hang again
            jobs.done(ended.job, JobFailed(error=hang_reason(ended.job, self.limit_s(ended.job))))
        elif ended.died or isinstance(ended.error, GpuLost):
            patience.lost(jobs, ended.job, _why(ended))
        elif ended.error is not None:
            raise ended.error


def _keeps(ended: JobResult[Job, Answer]) -> bool:
    """No process outlives a failure, which may have cost it the GPU."""
    return ended.answer is not None and not isinstance(ended.answer, JobFailed)


def hang_reason(job: Job, limit_s: float) -> str:
    """Why a job that was ended at its limit has no answer."""
    budget = job.budget_s if isinstance(job, KernelJob) else None
    of = f", with a budget of {budget:.0f} s" if budget is not None else ""
    return f"ended after {limit_s:.0f} s without an answer{of}"


def _why(ended: JobResult[Job, Answer]) -> str:
    if ended.died:
        return "its process ended: it crashed, was killed, ran out of memory, or hung"
    return f"the GPU was lost: {one_line(ended.error)}"


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
    _keep_progress_bars_local()
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
    return answer.evolve(seconds=round(time.monotonic() - began, 3))


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


def _keep_progress_bars_local() -> None:
    """Give tqdm, which torch.fx uses, a lock of threads alone. Its own is a named semaphore, of
    which Python warns on the terminal after a Ctrl-C that ended this process."""
    with suppress(ImportError):
        tqdm = importlib.import_module("tqdm").tqdm
        tqdm.set_lock(threading.RLock())


def _answer(job: Job) -> Answer:
    from agentkernel.nightly import end_to_end, region_job

    match job:
        case CutJob():
            return cut(job)
        case KernelJob():
            return (
                region_job.draft_kernel(job)
                if job.known is None
                else region_job.verify_known_kernel(job, job.known)
            )
        case _:
            return end_to_end.end_to_end(job)


def cut(job: CutJob) -> CutDone:
    """Cut the model, timed where a GPU measures for the target."""
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
    return nullcontext() if gpu_of(resolved) is None else gpu_lock.exclusive()
