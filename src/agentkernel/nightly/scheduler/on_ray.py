"""How are a night's jobs done on a Ray cluster, also where a worker, a node or the head is lost?"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.nightly.scheduler.engine import (
    GpuLost,
    JobSource,
    LossCounter,
    Work,
    hang_limit_s,
    hang_reason,
)
from agentkernel.nightly.scheduler.jobs import CutJob, Job, JobFailed, read_answer
from agentkernel.nightly.scheduler.ray_driver import (
    LEAVE_S,
    BeginJob,
    Cluster,
    ClusterRefused,
    Connected,
    JobEnded,
    serve,
)
from agentkernel.runtime.ray_cluster import last_words
from agentkernel.runtime.versions import installed_versions

STAND_IN = "gpu_stand_in"
"""A custom resource that stands for a GPU where a cluster has none: one of it a job."""
RAY_GONE = "its worker or its node was lost"
MOST_CUTS = 64
"""Cuts on CPUs that wait at Ray at a time."""
OTHER_VERSIONS = "version mismatch"
"""In what Ray says where Python or Ray differs."""
CONNECT_S = 120.0
"""A cluster answers by then, or there is none: Ray itself would wait on."""


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


@contextmanager
def ray_driver(cluster: Cluster, log: Path) -> Iterator[Connection]:
    """The line to a process that talks to Ray, which has ended when this is left."""
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency(
            f"--ray {cluster.address} needs the package 'ray', which is not installed. "
            "Next: pip install 'agentkernel[ray]'."
        )
    # Not forked: Ray has threads, and so may we. A daemon, lest an exit in between waits for it.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=serve, args=(there, cluster, log), daemon=True)
    child.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        child.join(LEAVE_S)
        if child.is_alive():
            child.kill()
            child.join()


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
    reach: Callable[[Cluster, Path], AbstractContextManager[Connection]] = ray_driver
    _held: ExitStack = field(default_factory=ExitStack, repr=False)

    def __post_init__(self) -> None:
        with ExitStack() as held:
            self.folder = Path(held.enter_context(_folder()))
            self._log = self.folder / "driver.log"
            resources = {STAND_IN: float(self.stand_ins)} if self.stand_ins else {}
            cluster = Cluster(self.address, resources, self.folder)
            self._line = held.enter_context(self.reach(cluster, self._log))
            self.slots = slots_of(self._connected().resources)
            self.workers = min(self.most or self.slots.jobs, self.slots.jobs)
            self._versions = installed_versions()
            self._held = held.pop_all()

    def run(self, jobs: JobSource, work: Work) -> None:
        """Do all jobs. What a node lacks, and the cluster's end, is raised as MissingDependency."""
        patience = LossCounter()
        running: dict[str, Job] = {}
        try:
            while True:
                self._begin(jobs, work, patience, running)
                if not running:
                    return
                ended = self._ended()
                self._end(jobs, patience, running.pop(ended.key), ended)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._held.close()

    def _connected(self) -> Connected:
        answer: Connected | ClusterRefused = ClusterRefused(f"no answer in {self.patience_s:.0f} s")
        try:
            if self._line.poll(self.patience_s):
                answer = self._line.recv()
        except (EOFError, OSError):
            answer = ClusterRefused(last_words(self._log) or "Ray's process ended")
        if isinstance(answer, Connected):
            return answer
        if OTHER_VERSIONS in answer.why.lower():
            raise MissingDependency(
                f"The Ray cluster at {self.address!r} cannot be used from here: {answer.why} "
                "Expected the same versions of Python and Ray. Next: install the cluster's here."
            )
        raise MissingDependency(
            f"No Ray cluster answers at {self.address!r}: {answer.why}. Expected auto, local, or "
            "ray://HOST:10001. Next: start one with 'ray start --head'; for one that asks for a "
            "token set RAY_AUTH_MODE=token."
        )

    def _begin(
        self, jobs: JobSource, work: Work, patience: LossCounter, running: dict[str, Job]
    ) -> None:
        """Hand Ray as many jobs as hold GPUs; a job that holds none waits for a CPU at Ray."""
        while self._room(running):
            job = patience.again.popleft() if patience.again else jobs.take()
            if job is None:
                return
            options = self.slots.share(job).options()
            text, limit = job.model_dump_json(), self.limit_s(job)
            begin = BeginJob(job.key, job.name, text, work, options, limit, self._versions)
            try:
                self._line.send(begin)
            except OSError as error:
                raise self._gone(last_words(self._log)) from error
            running[job.key] = job

    def _room(self, running: Mapping[str, Job]) -> bool:
        cuts = sum(isinstance(job, CutJob) for job in running.values())
        if self.slots.gpus or not self.slots.stand_ins:
            return len(running) < self.workers
        return len(running) - cuts < self.workers and cuts < MOST_CUTS

    def _ended(self) -> JobEnded:
        try:
            ended: JobEnded | ClusterRefused = self._line.recv()
        except (EOFError, OSError) as error:
            raise self._gone(last_words(self._log)) from error
        if isinstance(ended, ClusterRefused):
            raise self._gone(ended.why)
        return ended

    def _end(self, jobs: JobSource, patience: LossCounter, job: Job, ended: JobEnded) -> None:
        if ended.answer is not None:
            jobs.done(job, read_answer(ended.answer))
        elif isinstance(ended.error, GpuLost):
            patience.lost(jobs, job, f"the GPU was lost: {one_line(ended.error)}")
        elif ended.error is not None:
            raise ended.error
        elif ended.hung:  # it would hang again
            jobs.done(job, JobFailed(error=hang_reason(job, self.limit_s(job))))
        else:
            patience.lost(jobs, job, f"{RAY_GONE} ({ended.lost})")

    def _gone(self, why: str) -> MissingDependency:
        return MissingDependency(
            f"The Ray cluster at {self.address!r} does not answer any more"
            f"{f': {why}' if why else '.'} Expected that it outlives the night. Next: start it "
            "again, then give the same command: it goes on."
        )


def _folder() -> tempfile.TemporaryDirectory[str]:
    """For what Ray writes. Its sockets lie there, whose paths may not be long."""
    parent = os.environ.get("RAY_TMPDIR", "/tmp")
    return tempfile.TemporaryDirectory(prefix="ak-ray-", dir=parent, ignore_cleanup_errors=True)


def slots_of(resources: Mapping[str, float]) -> ClusterSlots:
    """From what Ray says of the cluster."""
    return ClusterSlots(
        gpus=int(resources.get("GPU", 0)),
        stand_ins=int(resources.get(STAND_IN, 0)),
        cpus=max(1, int(resources.get("CPU", 1))),
    )
