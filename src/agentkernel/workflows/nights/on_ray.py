"""How are a night's jobs done on a Ray cluster, with what is lost done again by Ray?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkernel.domain.base import Frozen
from agentkernel.errors import EnvironmentFailure, MissingDependency, one_line
from agentkernel.workflows.nights.engine import AGAIN, GpuLost, Jobs, Work
from agentkernel.workflows.nights.jobs import CutJob, Job, JobFailed, read_answer, read_job

if TYPE_CHECKING:
    from types import ModuleType

STAND_IN = "gpu_stand_in"
"""A custom resource that stands for a GPU where a cluster has none: one of it a job."""
LOCAL = "local"
RAY_GONE = "its worker or its node was lost"
MOST_CUTS = 64
"""Cuts on CPUs that wait at Ray at a time."""


class Told(Frozen):
    """What comes back from a worker: the answer as JSON, and how often the job had begun before."""

    answer: str
    attempt: int


@dataclass(frozen=True)
class Share:
    """What one job holds of the cluster."""

    cpus: float = 0.0
    gpus: float = 0.0
    stand_ins: float = 0.0

    def options(self) -> dict[str, Any]:
        """As a Ray task takes it."""
        held = {STAND_IN: self.stand_ins} if self.stand_ins else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": held}


@dataclass(frozen=True)
class Slots:
    """What a cluster has: GPUs or what stands for them, and CPUs."""

    gpus: int
    stand_ins: int
    cpus: int

    @property
    def jobs(self) -> int:
        """Jobs that hold a GPU at a time; without any, CPUs do them."""
        return self.gpus or self.stand_ins or self.cpus

    def share(self, job: Job) -> Share:
        """A GPU each, with a CPU beside it; where none is there, cuts and the rest are CPU work."""
        if self.gpus:
            return Share(cpus=1.0, gpus=1.0)
        if self.stand_ins and not isinstance(job, CutJob):
            return Share(cpus=0.0, stand_ins=1.0)
        return Share(cpus=1.0)


@dataclass
class RayEngine:
    """Tasks of the cluster at `address` ("auto", "ray://host:port"), or of one that is started here
    ("local"). At most `most` jobs at a time, else as many as there are GPUs.

    The zoo's folder and this package have to be at the same place on every node.
    """

    address: str
    most: int | None = None
    stand_ins: int = 0
    """How many custom resources stand for GPUs, where a cluster is started here."""

    def __post_init__(self) -> None:
        self._ray = connected(self.address, self.stand_ins)
        self.slots = slots_of(self._ray.cluster_resources())
        self.workers = min(self.most or self.slots.jobs, self.slots.jobs)

    def run(self, jobs: Jobs, work: Work) -> None:
        """Do all jobs. What the machine lacks is raised, and the cluster's end as well."""
        ray = self._ray
        task = ray.remote(max_retries=AGAIN, retry_exceptions=[GpuLost])(do_job)
        running: dict[Any, Job] = {}
        while True:
            self._begin(jobs, work, task, running)
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                self._end(jobs, running.pop(reference), reference)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()

    def _begin(self, jobs: Jobs, work: Work, task: Any, running: dict[Any, Job]) -> None:
        """Hand Ray as many jobs as hold GPUs; a job that holds none waits for a CPU at Ray."""
        while self._room(running):
            job = jobs.take()
            if job is None:
                return
            options = self.slots.share(job).options()
            reference = task.options(name=job.name, **options).remote(work, job.model_dump_json())
            running[reference] = job

    def _room(self, running: Mapping[Any, Job]) -> bool:
        cuts = sum(isinstance(job, CutJob) for job in running.values())
        if self.slots.gpus or not self.slots.stand_ins:
            return len(running) < self.workers
        return len(running) - cuts < self.workers and cuts < MOST_CUTS

    def _end(self, jobs: Jobs, job: Job, reference: Any) -> None:
        from ray.exceptions import RayError, RayTaskError

        try:
            told = Told.model_validate_json(self._ray.get(reference))
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, EnvironmentFailure):
                raise cause from error
            jobs.done(job, JobFailed(error=one_line(cause or error)))
        except RayError as error:
            if not self._ray.is_initialized():
                raise
            why = one_line(f"{RAY_GONE}, {AGAIN + 1} times: {type(error).__name__}")
            jobs.done(job, JobFailed(error=why))
        else:
            if told.attempt:
                jobs.lost(job, RAY_GONE, told.attempt)
            jobs.done(job, read_answer(told.answer))


def do_job(work: Work, text: str) -> str:
    """On a worker: one job, as JSON in and out."""
    answer = work(read_job(text))
    return Told(answer=answer.model_dump_json(), attempt=_attempt()).model_dump_json()


def _attempt() -> int:
    """How often Ray has begun this task before; 0 where this version of Ray does not say."""
    with suppress(ImportError, AttributeError):
        from ray._private.worker import global_worker

        return int(global_worker.core_worker.get_current_task_attempt_number())
    return 0


def connected(address: str, stand_ins: int = 0) -> ModuleType:
    """Ray, connected to `address`. Raises MissingDependency without the package or the cluster."""
    # Ray's own warnings about a driver's settings are nobody's business here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(
            f"--ray {address} needs the package 'ray', which is not installed. "
            "Next: pip install 'agentkernel[ray]'."
        ) from error
    try:
        if address == LOCAL:
            held = {STAND_IN: float(stand_ins)} if stand_ins else None
            ray.init(resources=held, include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise MissingDependency(
            f"No Ray cluster answers at {address!r}: {one_line(error)}. Expected auto, local, or "
            "ray://HOST:10001. Next: start one with 'ray start --head'."
        ) from error
    return ray  # type: ignore[no-any-return]


def slots_of(resources: Mapping[str, float]) -> Slots:
    """From what Ray says of the cluster."""
    return Slots(
        gpus=int(resources.get("GPU", 0)),
        stand_ins=int(resources.get(STAND_IN, 0)),
        cpus=max(1, int(resources.get("CPU", 1))),
    )
