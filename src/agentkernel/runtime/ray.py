"""Work on a Ray cluster: typed tasks, whose loss is a value, and the child that talks to Ray.

Ray ends the process that talks to it where its head is gone, prints to it, and keeps its own
processes as long as that one lives. So a child process talks to Ray, and this one talks to the
child over a pipe.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import math
import multiprocessing
import os
import pickle
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.runtime.machine import installed_versions
from agentkernel.runtime.worker import end_after_parent

LOCAL = "local"
"""The address that stands for a cluster that is started here."""
OBJECT_STORE_BYTES = 200_000_000
"""Of a cluster that is started here: jobs and answers are text."""
SHARED = ("agentkernel", "torch", "triton")
"""What is part of a kernel's identity or of how it is judged, so that all nodes must agree on it.
Ray itself compares Python and Ray."""
SETTINGS = {
    # Ray's own warnings about a driver's settings are nobody's business here.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers are at the lowest priority but four otherwise, and what they time with them.
    "RAY_worker_niceness": "0",
}
"""Environment of a cluster that is started here, where the user's says nothing else."""

CONNECT_S = 120.0
"""A cluster answers by then, or there is none: Ray itself would wait on."""
LEAVE_S = 30.0
"""A cluster that was started here has ended by then."""
POLL_S = 0.1
"""So often is the pipe looked at while jobs are under way."""
SILENT_S = 10.0
"""So long has a worker to say that its task hangs."""
STUCK_S = 30.0
"""So long after that a task whose worker says nothing, and whose node lives, is given up."""
BEGUN_S = 2.0
"""So often are tasks asked for that have begun: Ray does not say when one has, and it may wait for
a worker for long."""
STUCK = "its worker is stuck"
LOST = "its worker or its node was lost"
OTHER_VERSIONS = "version mismatch"
"""In what Ray says where Python or Ray differs."""
STDOUT, STDERR = 1, 2


@dataclass(frozen=True)
class Cluster:
    """Which one. Its nodes have to have `needs`, and `versions`; `resources` and `folder` are for
    one that is started here."""

    address: str
    needs: str
    versions: Versions
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
class RayTask:
    """What `work` is to do with `request` (both it and its answer are JSON), what that holds of the
    cluster, and when it hangs."""

    key: str
    name: str
    work: Callable[[str], str]
    request: str
    options: Mapping[str, Any]
    limit_s: float


@dataclass(frozen=True)
class TaskEnded:
    """What became of a task: its answer, what it raised, or how its worker was lost; `hung` where
    that was at the task's limit."""

    key: str
    answer: str | None = None
    error: BaseException | None = None
    lost: str = ""
    hung: bool = False


class ClusterGone(RuntimeError):
    """Nothing is left that could do a task."""


Reach = Callable[[Cluster, Path], AbstractContextManager[Connection]]


@contextmanager
def ray_child(cluster: Cluster, log: Path) -> Iterator[Connection]:
    """The pipe to a process that talks to Ray, which has ended when this is left."""
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency(
            f"--ray {cluster.address} needs the package 'ray', which is not installed. "
            "Next: pip install '.[ray]' in the clone."
        )
    # Not forked: Ray has threads, and so may we. A daemon, lest an exit in between waits for it.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=serve, args=(there, cluster, log), daemon=True)
    child.start()
    there.close()
    try:
        yield here
    except MissingDependency:
        if cluster.address != LOCAL:  # Ray would look for it still
            child.kill()
        raise
    finally:
        here.close()
        child.join(LEAVE_S)
        if child.is_alive():
            child.kill()
            child.join()


class RayCluster:
    """The cluster at `address` ("auto", "ray://host:port"), or one that is started here ("local")
    and ends with `close`. It is to outlive the `command`, as a message calls it.

    Raises MissingDependency without the package or the cluster.
    """

    def __init__(
        self,
        address: str,
        command: str,
        needs: str,
        resources: Mapping[str, float] | None = None,
        patience_s: float = CONNECT_S,
        reach: Reach = ray_child,
    ) -> None:
        self._address, self._command = address, command
        with ExitStack() as held:
            self.folder = Path(held.enter_context(ray_folder()))
            self._log = self.folder / "driver.log"
            cluster = Cluster(address, needs, installed_versions(), resources or {}, self.folder)
            self._line = held.enter_context(reach(cluster, self._log))
            self.resources = self._connected(patience_s).resources
            self._held = held.pop_all()

    def begin(self, task: RayTask) -> None:
        """Hand Ray a task; it waits there for what it holds. Raises MissingDependency."""
        try:
            self._line.send(task)
        except OSError as error:
            raise self._gone(last_words(self._log)) from error

    def answered(self, wait_s: float) -> bool:
        """Whether `ended` would answer at once, after `wait_s` at most."""
        try:
            return self._line.poll(wait_s)
        except OSError:
            return True

    def ended(self) -> TaskEnded:
        """The next task that has ended. Raises MissingDependency where the cluster is gone."""
        try:
            ended: TaskEnded | ClusterRefused = self._line.recv()
        except (EOFError, OSError) as error:
            raise self._gone(last_words(self._log)) from error
        if isinstance(ended, ClusterRefused):
            raise self._gone(ended.why)
        return ended

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._held.close()

    def _connected(self, patience_s: float) -> Connected:
        answer: Connected | ClusterRefused = ClusterRefused(f"no answer in {patience_s:.0f} s")
        try:
            if self._line.poll(patience_s):
                answer = self._line.recv()
        except (EOFError, OSError):
            answer = ClusterRefused(last_words(self._log) or "Ray's process ended")
        if isinstance(answer, Connected):
            return answer
        if OTHER_VERSIONS in answer.why.lower():
            raise MissingDependency(
                f"The Ray cluster at {self._address!r} cannot be used from here: {answer.why} "
                "Expected the same versions of Python and Ray. Next: install the cluster's here."
            )
        raise MissingDependency(
            f"No Ray cluster answers at {self._address!r}: {answer.why}. Expected auto, local, or "
            "ray://HOST:10001. Next: start one with 'ray start --head'; for one that asks for a "
            "token set RAY_AUTH_MODE=token."
        )

    def _gone(self, why: str) -> MissingDependency:
        return MissingDependency(
            f"The Ray cluster at {self._address!r} does not answer any more"
            f"{f': {why}' if why else '.'} Expected that it outlives the {self._command}. "
            "Next: start it again, then give the same command: it goes on."
        )


def ray_folder() -> tempfile.TemporaryDirectory[str]:
    """For what Ray writes. Its sockets lie there, whose paths may not be long."""
    parent = os.environ.get("RAY_TMPDIR", "/tmp")
    return tempfile.TemporaryDirectory(prefix="ak-ray-", dir=parent, ignore_cleanup_errors=True)


def last_words(log: Path) -> str:
    """The last line that Ray printed before its process ended; "" where it said nothing."""
    with suppress(OSError):
        lines = [item for item in log.read_text(errors="replace").splitlines() if item.strip()]
        return one_line(lines[-1]) if lines else ""
    return ""


def _detach(log: Path) -> None:
    """Make this child one that may talk to Ray: no Ctrl-C, its output in `log`, SETTINGS in its
    environment, and an end LEAVE_S after its parent's."""
    os.setsid()  # Ctrl-C is the parent's, which closes the line
    end_after_parent(LEAVE_S)
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDOUT)
        os.dup2(file.fileno(), STDERR)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


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


def serve(line: Connection, cluster: Cluster, log: Path) -> None:
    """The child's whole life: connect, do what the line asks for, and leave once it is closed."""
    _detach(log)
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
                _relay(ray, line, cluster)
            except ClusterGone as error:
                line.send(ClusterRefused(one_line(error)))
    finally:
        ray.shutdown()


def _relay(ray: Any, line: Connection, cluster: Cluster) -> None:
    """Tasks in, what became of them out. A lost one is not begun again: the parent does that."""
    remote = ray.remote(max_retries=0)(do_task)
    running: dict[Any, RayTask] = {}
    clock = TaskClock(_has_begun)
    while True:
        while line.poll(0 if running else None):
            task: RayTask = line.recv()
            reference = remote.options(name=task.name, **task.options).remote(
                task, cluster.versions
            )
            running[reference] = task
        done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S)
        for reference in done:
            key = running.pop(reference).key
            clock.forget(key)
            _send(line, _ended(ray, key, reference, cluster.needs))
        stuck = clock.stuck(list(running.values()))
        for reference in [item for item, task in running.items() if task.key in stuck]:
            key = running.pop(reference).key
            clock.forget(key)
            ray.cancel(reference, force=True)
            _send(line, TaskEnded(key, lost=STUCK, hung=True))


class TaskClock:
    """How long tasks have been at work: those for which `begun` says that their worker has."""

    def __init__(
        self, begun: Callable[[str], bool], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._begun, self._now = begun, now
        self._since: dict[str, float] = {}
        self._asked_s = -math.inf

    def stuck(self, tasks: Sequence[RayTask]) -> set[str]:
        """The keys of those whose workers should long have ended them."""
        now = self._now()
        if now - self._asked_s >= BEGUN_S:
            self._asked_s = now
            waiting = [task.key for task in tasks if task.key not in self._since]
            self._since |= {key: now for key in waiting if self._begun(key)}
        return {
            task.key
            for task in tasks
            if now - self._since.get(task.key, math.inf) > task.limit_s + SILENT_S + STUCK_S
        }

    def forget(self, key: str) -> None:
        """It has ended."""
        self._since.pop(key, None)


def _ended(ray: Any, key: str, reference: Any, needs: str) -> TaskEnded:
    from ray.exceptions import (
        LocalRayletDiedError,
        OutOfMemoryError,
        RayError,
        RayTaskError,
        RuntimeEnvSetupError,
        WorkerCrashedError,
    )

    try:
        return TaskEnded(key, answer=ray.get(reference))
    except RuntimeEnvSetupError as error:
        return TaskEnded(key, error=MissingDependency(_unable(error, needs)))
    except RayTaskError as error:
        # Where the task could not even be read, there is no cause.
        cause = error.cause
        if cause is None or isinstance(cause, ImportError):
            cause = MissingDependency(_unable(cause or error, needs))
        return TaskEnded(key, error=cause)
    except (WorkerCrashedError, OutOfMemoryError) as error:
        return TaskEnded(key, lost=type(error).__name__, hung=_has_hung(key))
    except (RayError, ConnectionError) as error:
        if isinstance(error, LocalRayletDiedError | ConnectionError) or not _any_node(ray):
            raise ClusterGone(f"{type(error).__name__}: {one_line(error, 120)}") from error
        return TaskEnded(key, lost=type(error).__name__)


def _any_node(ray: Any) -> bool:
    """True where the head answers, and knows of a node that lives. Without a head Ray waits for one
    for a minute, and then ends this process."""
    try:
        return any(node["Alive"] for node in ray.nodes())
    except (RuntimeError, ConnectionError, ray.exceptions.RayError):
        return False


def _unable(error: BaseException, needs: str) -> str:
    return (
        f"A worker of the Ray cluster cannot do a job: {one_line(error)}. Expected {needs} "
        "on every node, as here. Next: install it there, then give the same command: it goes on."
    )


def _send(line: Connection, ended: TaskEnded) -> None:
    try:
        line.send(ended)
    except (pickle.PicklingError, TypeError, AttributeError):
        line.send(TaskEnded(ended.key, error=RuntimeError(one_line(ended.error))))


def do_task(task: RayTask, versions: Versions) -> str:
    """On a worker: one task. What hangs past its limit ends its process.

    Raises MissingDependency where this node has other `versions`.
    """
    _check(versions)
    _say_begun(task.key)
    timer = threading.Timer(task.limit_s, _end_hanging, (task.key,))
    timer.daemon = True
    timer.start()
    # What holds the interpreter is ended as well, if without a word.
    faulthandler.dump_traceback_later(task.limit_s + SILENT_S, exit=True, file=STDERR)
    try:
        return task.work(task.request)
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


def _say_begun(key: str) -> None:
    """Tell the head, where there is one, that this worker is at the task."""
    from ray.experimental import internal_kv

    if internal_kv._internal_kv_initialized():
        internal_kv._internal_kv_put(_begun_name(key), b"1")


def _has_begun(key: str) -> bool:
    """True once its worker has said so; asked for once."""
    from ray.experimental import internal_kv

    return bool(internal_kv._internal_kv_del(_begun_name(key)))


def _begun_name(key: str) -> bytes:
    return f"agentkernel:begun:{key}".encode()


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
