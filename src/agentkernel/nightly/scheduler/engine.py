"""How are a night's jobs done on this machine, also where a process or a GPU is lost?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.nightly.scheduler.jobs import Answer, Job, JobFailed, KernelJob
from agentkernel.runtime.bench_lanes import CPU
from agentkernel.runtime.workflows_lanes import JobResult, run_jobs

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

        places = tuple(self.devices) * self.lanes
        for ended in run_jobs(
            take,
            work,
            places,
            self.locks,
            limit_s=self.limit_s,
            keep=_keeps,
            usable=self.answers,
        ):
            if ended.answer is not None:
                jobs.done(ended.job, ended.answer)
            elif ended.hung:  # it would hang again
                jobs.done(
                    ended.job, JobFailed(error=hang_reason(ended.job, self.limit_s(ended.job)))
                )
            elif ended.died or isinstance(ended.error, GpuLost):
                patience.lost(jobs, ended.job, _why(ended))
            elif ended.error is not None:
                raise ended.error
        if patience.again or jobs.take() is not None:
            raise MissingDependency(
                f"None of the devices {', '.join(self.devices)} answers any more. Expected one "
                "that does. Next: look at 'nvidia-smi', then give the same command: it goes on."
            )


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
