"""Ray engine: jobs on a Ray cluster, surviving a lost worker, node or head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentkernel.domain.errors import one_line
from agentkernel.nightly.scheduler.engine import (
    GpuLost,
    JobSource,
    LossCounter,
    Work,
    hang_limit_s,
    hang_reason,
)
from agentkernel.nightly.scheduler.jobs import CutJob, Job, JobFailed, read_answer, read_job
from agentkernel.runtime.ray import (
    CONNECT_S,
    LOST,
    RayCluster,
    RayTask,
    Reach,
    TaskEnded,
    ray_child,
)

STAND_IN = "gpu_stand_in"
"""A custom resource that stands for a GPU where a cluster has none: one of it a job."""
MOST_CUTS = 64
"""Cuts on CPUs that wait at Ray at a time."""


@dataclass(frozen=True)
class ResourceShare:
    """What one job holds of the cluster."""

    cpus: float = 0.0
    gpus: float = 0.0
    stand_ins: float = 0.0

    def options(self) -> dict[str, Any]:
        """As a Ray task takes it."""
        held = {STAND_IN: self.stand_ins} if self.stand_ins else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": held}


@dataclass(frozen=True)
class ClusterSlots:
    """What a cluster has: GPUs or what stands for them, and CPUs."""

    gpus: int
    stand_ins: int
    cpus: int

    @property
    def jobs(self) -> int:
        """Jobs that hold a GPU at a time; without any, CPUs do them."""
        return self.gpus or self.stand_ins or self.cpus

    def share(self, job: Job) -> ResourceShare:
        """A GPU each, with a CPU beside it; where none is there, cuts and the rest are CPU work."""
        if self.gpus:
            return ResourceShare(cpus=1.0, gpus=1.0)
        if self.stand_ins and not isinstance(job, CutJob):
            return ResourceShare(cpus=0.0, stand_ins=1.0)
        return ResourceShare(cpus=1.0)


@dataclass
class RayEngine:
    """Tasks of the cluster at `address` ("auto", "ray://host:port"), or of one that is started here
    ("local"). At most `most` jobs at a time, else as many as there are GPUs. The cluster is left,
    or ended, with the end of `run`.

    The zoo's folder and this package have to be at the same place on every node. Raises
    MissingDependency without the package or the cluster.
    """

    address: str
    most: int | None = None
    stand_ins: int = 0
    """How many custom resources stand for GPUs, where a cluster is started here."""
    limit_s: Callable[[Job], float] = hang_limit_s
    patience_s: float = CONNECT_S
    reach: Reach = ray_child

    def __post_init__(self) -> None:
        self._cluster = RayCluster(
            self.address,
            "night",
            "this package and the zoo's folder",
            {STAND_IN: float(self.stand_ins)} if self.stand_ins else {},
            self.patience_s,
            self.reach,
        )
        self.folder = self._cluster.folder
        self.slots = slots_of(self._cluster.resources)
        self.workers = min(self.most or self.slots.jobs, self.slots.jobs)

    def run(self, jobs: JobSource, work: Work) -> None:
        """Do all jobs. What a node lacks, and the cluster's end, is raised as MissingDependency."""
        patience = LossCounter()
        running: dict[str, Job] = {}
        try:
            while True:
                self._begin(jobs, partial(do_job, work), patience, running)
                if not running:
                    return
                ended = self._cluster.ended()
                self._end(jobs, patience, running.pop(ended.key), ended)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._cluster.close()

    def _begin(
        self,
        jobs: JobSource,
        work: Callable[[str], str],
        patience: LossCounter,
        running: dict[str, Job],
    ) -> None:
        """Hand Ray as many jobs as hold GPUs; a job that holds none waits for a CPU at Ray."""
        while self._room(running):
            job = patience.again.popleft() if patience.again else jobs.take()
            if job is None:
                return
            options = self.slots.share(job).options()
            text, limit_s = job.model_dump_json(), self.limit_s(job)
            self._cluster.begin(RayTask(job.key, job.name, work, text, options, limit_s))
            running[job.key] = job

    def _room(self, running: Mapping[str, Job]) -> bool:
        cuts = sum(isinstance(job, CutJob) for job in running.values())
        if self.slots.gpus or not self.slots.stand_ins:
            return len(running) < self.workers
        return len(running) - cuts < self.workers and cuts < MOST_CUTS

    def _end(self, jobs: JobSource, patience: LossCounter, job: Job, ended: TaskEnded) -> None:
        if ended.answer is not None:
            jobs.done(job, read_answer(ended.answer))
        elif isinstance(ended.error, GpuLost):
            patience.lost(jobs, job, f"the GPU was lost: {one_line(ended.error)}")
        elif ended.error is not None:
            raise ended.error
        elif ended.hung:  # it would hang again
            jobs.done(job, JobFailed(error=hang_reason(job, self.limit_s(job))))
        else:
            patience.lost(jobs, job, f"{LOST} ({ended.lost})")


def do_job(work: Work, text: str) -> str:
    """On a worker: one job, as JSON in and out."""
    return work(read_job(text)).model_dump_json()


def slots_of(resources: Mapping[str, float]) -> ClusterSlots:
    """From what Ray says of the cluster."""
    return ClusterSlots(
        gpus=int(resources.get("GPU", 0)),
        stand_ins=int(resources.get(STAND_IN, 0)),
        cpus=max(1, int(resources.get("CPU", 1))),
    )
