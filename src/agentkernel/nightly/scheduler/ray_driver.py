"""How does a process of its own stand between a night and Ray, so that Ray's end is not its end?

Ray ends the process that talks to it where its head is gone, prints what it likes, and keeps its
processes as long as that one lives. Here this is a child, that the night talks to over a pipe.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import platform
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.nightly.scheduler.engine import Work
from agentkernel.nightly.scheduler.jobs import read_job
from agentkernel.runtime.ray_cluster import LOCAL, OBJECT_STORE_BYTES, SETTINGS, SHARED

POLL_S = 0.1
"""So often is the pipe looked at while jobs are under way."""
STDOUT, STDERR = 1, 2
LEAVE_S = 30.0
"""A cluster that was started here has ended by then."""
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
    os.setsid()  # Ctrl-C is the parent's, which closes the line
    threading.Thread(target=_end_after_parent, daemon=True).start()
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDOUT)
        os.dup2(file.fileno(), STDERR)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    try:
        try:
            _connect(ray, cluster)
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


def _end_after_parent() -> None:
    """Ray may be in the middle of a call that does not end when the parent has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        time.sleep(LEAVE_S)
        os._exit(1)


def _connect(ray: Any, cluster: Cluster) -> None:
    if cluster.address != LOCAL:
        ray.init(address=cluster.address, log_to_driver=False)
        return
    ray.init(
        # Without this word Ray takes any cluster that it finds here.
        address=LOCAL,
        resources=dict(cluster.resources) or None,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(cluster.folder) if cluster.folder else None,
    )


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
    from agentkernel.runtime.versions import installed_versions

    here = installed_versions()
    for name in SHARED:
        wanted, found = getattr(expected, name), getattr(here, name)
        if wanted != found:
            raise MissingDependency(
                f"Node {platform.node()} of the Ray cluster has {name} {found}; expected {wanted}, "
                "as the command has. Next: install the same versions on every node, then give the "
                "same command: it goes on."
            )
