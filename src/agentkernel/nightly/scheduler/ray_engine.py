"""Ray engine: jobs on a Ray cluster, surviving a lost worker, node or head.

Ray ends the process that talks to it where its head is gone, prints to it, and keeps its own
processes as long as that one lives. So a child process talks to Ray, and the run talks to the
child over a pipe.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import multiprocessing
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.nightly.scheduler.engine import (
    GpuLost,
    JobSource,
    LossCounter,
    Work,
    hang_limit_s,
    hang_reason,
)
from agentkernel.nightly.scheduler.jobs import CutJob, Job, JobFailed, read_answer, read_job
from agentkernel.runtime.machine import installed_versions
from agentkernel.runtime.ray import (
    CONNECT_S,
    LEAVE_S,
    POLL_S,
    SHARED,
    STDERR,
    connect_ray,
    detach,
    last_words,
    ray_folder,
)

SILENT_S = 10.0
"""So long has a worker to say that its job hangs."""


class ClusterGone(RuntimeError):
    """Nothing is left that could do a job."""


@dataclass(frozen=True)
class Cluster:
    """Which one: `resources` and `folder` are for one that is started here."""

    address: str
    resources: Mapping[str, float] = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True)
class Connected:
    """What the cluster has, by Ray's names."""

    resources: Mapping[str, float]


@dataclass(frozen=True)
class ClusterRefused:
    """No cluster, or none any more, and why in one line."""

    why: str


@dataclass(frozen=True)
class BeginJob:
    """A job, as JSON, with what it holds of the cluster and when it hangs."""

    key: str
    name: str
    job: str
    work: Work
    options: Mapping[str, Any]
    limit_s: float
    versions: Versions


@dataclass(frozen=True)
class JobEnded:
    """What became of a job: its answer as JSON, what it raised, or how its worker was lost; `hung`
    where that was at the job's limit."""

    key: str
    answer: str | None = None
    error: BaseException | None = None
    lost: str = ""
    hung: bool = False


def serve(line: Connection, cluster: Cluster, log: Path) -> None:
    """The child's whole life: connect, do what the line asks for, and leave once it is closed."""
    detach(log, LEAVE_S)
    import ray

    try:
        try:
            connect_ray(ray, cluster.address, cluster.folder, cluster.resources)
            line.send(Connected(dict(ray.cluster_resources())))
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            line.send(ClusterRefused(one_line(error)))
            return
        with suppress(EOFError, OSError):  # the parent has gone, or has had enough
            try:
                _relay(ray, line)
            except ClusterGone as error:
                line.send(ClusterRefused(one_line(error)))
    finally:
        ray.shutdown()


def _relay(ray: Any, line: Connection) -> None:
    """Jobs in, what became of them out. A lost one is not begun again: the night does that."""
    task = ray.remote(max_retries=0)(do_job)
    running: dict[Any, BeginJob] = {}
    while True:
        while line.poll(0 if running else None):
            begin: BeginJob = line.recv()
            asked = task.options(name=begin.name, **begin.options)
            reference = asked.remote(begin.work, begin.job, begin.limit_s, begin.versions)
            running[reference] = begin
        done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S)
        for reference in done:
            _send(line, _ended(ray, running.pop(reference).key, reference))


def _ended(ray: Any, key: str, reference: Any) -> JobEnded:
    from ray.exceptions import (
        LocalRayletDiedError,
        OutOfMemoryError,
        RayError,
        RayTaskError,
        RuntimeEnvSetupError,
        WorkerCrashedError,
    )

    try:
        return JobEnded(key, answer=ray.get(reference))
    except RuntimeEnvSetupError as error:
        return JobEnded(key, error=MissingDependency(_unable(error)))
    except RayTaskError as error:
        # Where the job could not even be read, there is no cause.
        cause = error.cause
        if cause is None or isinstance(cause, ImportError):
            cause = MissingDependency(_unable(cause or error))
        return JobEnded(key, error=cause)
    except (WorkerCrashedError, OutOfMemoryError) as error:
        return JobEnded(key, lost=type(error).__name__, hung=_has_hung(key))
    except (RayError, ConnectionError) as error:
        if isinstance(error, LocalRayletDiedError | ConnectionError) or not _any_node(ray):
            raise ClusterGone(f"{type(error).__name__}: {one_line(error, 120)}") from error
        return JobEnded(key, lost=type(error).__name__)


def _any_node(ray: Any) -> bool:
    """True where the head answers, and knows of a node that lives. Without a head Ray waits for one
    for a minute, and then ends this process."""
    try:
        return any(node["Alive"] for node in ray.nodes())
    except (RuntimeError, ConnectionError, ray.exceptions.RayError):
        return False


def _unable(error: BaseException) -> str:
    return (
        f"A worker of the Ray cluster cannot do a job: {one_line(error)}. Expected this package "
        "and the zoo's folder on every node, as they are here. Next: install them there, then give "
        "the same command: it goes on."
    )


def _send(line: Connection, ended: JobEnded) -> None:
    try:
        line.send(ended)
    except (pickle.PicklingError, TypeError, AttributeError):
        line.send(JobEnded(ended.key, error=RuntimeError(one_line(ended.error))))


def do_job(work: Work, text: str, limit_s: float, versions: Versions) -> str:
    """On a worker: one job, as JSON in and out. What hangs past `limit_s` ends its process.

    Raises MissingDependency where this node has other versions than the command.
    """
    _check(versions)
    job = read_job(text)
    timer = threading.Timer(limit_s, _end_hanging, (job.key,))
    timer.daemon = True
    timer.start()
    # What holds the interpreter is ended as well, if without a word.
    faulthandler.dump_traceback_later(limit_s + SILENT_S, exit=True, file=STDERR)
    try:
        return work(job).model_dump_json()
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end_hanging(key: str) -> None:
    """End this worker; where it hung stands in its log, and that it did at the head."""
    from ray.experimental import internal_kv

    try:
        faulthandler.dump_traceback(file=STDERR)
        internal_kv._internal_kv_put(_hung_name(key), b"1")
    finally:
        os._exit(1)


def _has_hung(key: str) -> bool:
    """True where a worker said so before it ended. Ray does not say when a job has begun, which may
    have waited for a worker for long."""
    from ray.experimental import internal_kv

    return bool(internal_kv._internal_kv_del(_hung_name(key)))


def _hung_name(key: str) -> bytes:
    return f"agentkernel:hung:{key}".encode()


def _check(expected: Versions) -> None:
    here = installed_versions()
    for name in SHARED:
        wanted, found = getattr(expected, name), getattr(here, name)
        if wanted != found:
            raise MissingDependency(
                f"Node {platform.node()} of the Ray cluster has {name} {found}; expected {wanted}, "
                "as the command has. Next: install the same versions on every node, then give the "
                "same command: it goes on."
            )


STAND_IN = "gpu_stand_in"
"""A custom resource that stands for a GPU where a cluster has none: one of it a job."""
RAY_GONE = "its worker or its node was lost"
MOST_CUTS = 64
"""Cuts on CPUs that wait at Ray at a time."""
OTHER_VERSIONS = "version mismatch"
"""In what Ray says where Python or Ray differs."""


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
            self.folder = Path(held.enter_context(ray_folder()))
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


def slots_of(resources: Mapping[str, float]) -> ClusterSlots:
    """From what Ray says of the cluster."""
    return ClusterSlots(
        gpus=int(resources.get("GPU", 0)),
        stand_ins=int(resources.get(STAND_IN, 0)),
        cpus=max(1, int(resources.get("CPU", 1))),
    )
