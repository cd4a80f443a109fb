"""Pools of workers: jobs assigned to workers or devices, so that a death costs one job.

Also the priority of helper processes beside timed ones.
"""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import multiprocessing.forkserver as forkserver
import multiprocessing.resource_tracker as resource_tracker
import os
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from agentkernel.runtime import gpu_lock
from agentkernel.runtime.machine import CPU, hold_devices, join_devices
from agentkernel.runtime.timed_cpus import LANES, cores_to_reserve, keep_off, on_timed_cpus
from agentkernel.runtime.worker import end_after_parent

COMPILER_NICE = 10
BASELINE_NICE = 15
"""Compilers of baselines come behind those of candidates, which a run waits for."""
TIMED_NICE = -10


AGAIN_S, AGAIN_TIMES = 0.1, 10
"""A user's writes to /proc/PID/autogroup are refused above ten a second on the whole machine."""


def lower_priority(pid: int, nice: int = COMPILER_NICE) -> None:
    """Lower the priority of the thread that leads process `pid` (0: of this thread) and of all that
    it starts from now on. For good: never where something is timed."""
    with contextlib.suppress(ProcessLookupError):
        # One that is lower already (under `nice`, or a Ray worker) may not be raised.
        if os.getpriority(os.PRIO_PROCESS, pid) < nice:
            os.setpriority(os.PRIO_PROCESS, pid, nice)


@contextlib.contextmanager
def at_priority(nice: int) -> Iterator[None]:
    """Meanwhile this thread, and the session where it leads one, has the priority `nice`; what it
    starts keeps it. Where the system would not let it come back, nothing changes."""
    own = threading.get_native_id()
    before = _renice(own, nice) if may_raise_priority() else None
    try:
        yield
    finally:
        if before is not None:
            _renice(own, *before)


@functools.cache
def may_raise_priority() -> bool:
    """Whether a thread that has lowered its priority may raise it again (CAP_SYS_NICE, or a limit
    RLIMIT_NICE that allows it); found out with a thread that ends."""
    found: list[bool] = []

    def attempt() -> None:
        own = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, own)
        found.append(_renice(own, before + 1) is not None and _renice(own, before) is not None)

    thread = threading.Thread(target=attempt, name="priority")
    thread.start()
    thread.join()
    return found == [True]


@contextlib.contextmanager
def raised_priority(pids: Iterable[int]) -> Iterator[None]:
    """Meanwhile the leading threads of `pids`, and the sessions that they lead, get a processor
    before all who have not asked: a module of many short kernels is as slow as its launches. Where
    the system does not let us (it takes CAP_SYS_NICE), nothing changes."""
    changed = {pid: before for pid in pids if (before := _renice(pid, TIMED_NICE)) is not None}
    try:
        yield
    finally:
        for pid, before in changed.items():
            _renice(pid, *before)


@contextlib.contextmanager
def first_at_processors(timed: Callable[[], Sequence[int]]) -> Iterator[None]:
    """This thread and the processes `timed` come before others at the processors, where others use
    the GPU: what launches much is otherwise as slow as the compilers beside it."""
    with ExitStack() as front:
        if gpu_lock.has_other_users():
            pids = timed()
            front.enter_context(raised_priority([threading.get_native_id(), *pids]))
            front.enter_context(on_timed_cpus(pids))
        yield


class _Niceness(NamedTuple):
    """Of a thread, and of the session that it leads, if it leads one."""

    thread: int
    session: int | None


def _renice(pid: int, thread: int, session: int | None = None) -> _Niceness | None:
    """What it was before; None where it could not be changed. A session gets the niceness of its
    leading thread unless another is named: where the system weighs sessions against each other,
    that of a thread counts within its own alone (sched(7), "The autogroup feature")."""
    try:
        before = os.getpriority(os.PRIO_PROCESS, pid)
        os.setpriority(os.PRIO_PROCESS, pid, thread)
    except OSError:  # no right to, or gone
        return None
    return _Niceness(before, _renice_session(pid, thread if session is None else session))


def _renice_session(pid: int, nice: int) -> int | None:
    """What it was before; None where `pid` leads no session, or the system does not weigh them or
    let us."""
    path = Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError, ValueError, IndexError):
        if os.getsid(pid) != pid:
            return None
        before = int(path.read_text(encoding="ascii").split()[-1])
        for _ in range(AGAIN_TIMES):
            try:
                path.write_text(str(nice), encoding="ascii")
            except BlockingIOError:
                time.sleep(AGAIN_S)
            else:
                return before
    return None


L = TypeVar("L", bound="JobRunner")
J = TypeVar("J")
A = TypeVar("A")


class JobRunner(Protocol):
    """What does one job at a time."""

    def kill(self) -> None:
        """End what is at work, from another thread."""


def assign_jobs(
    runners: Sequence[L], take: Callable[[L, J | None], J | None], work: Callable[[L, J], A]
) -> Generator[tuple[J, A]]:
    """Each job with its answer as it ends: `work` runs in a thread a runner.

    `take` is given a runner and the job that it did last, None before its first, and gives its
    next, None where there is none for now: it is asked again after each end, and all is over once
    nothing runs and nothing is given. Where this ends early, an error of
    `work` included, the runners are killed.
    """
    threads = ThreadPoolExecutor(max(1, len(runners)), "runner")
    running: dict[Future[A], tuple[L, J]] = {}
    idle: list[tuple[L, J | None]] = [(runner, None) for runner in runners]
    try:
        while True:
            for entry in list(idle):
                runner, last = entry
                if (job := take(runner, last)) is not None:
                    idle.remove(entry)
                    running[threads.submit(work, runner, job)] = (runner, job)
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                runner, job = running.pop(future)
                idle.insert(0, (runner, job))
                yield job, future.result()
    finally:
        if running:
            threads.shutdown(wait=False, cancel_futures=True)
            for runner in runners:
                runner.kill()
        threads.shutdown(wait=True)


class AffinityQueue:
    """The places of jobs about `subjects`, each handed out once."""

    def __init__(self, subjects: Sequence[str]) -> None:
        self._left: dict[str, deque[int]] = {}
        for place, subject in enumerate(subjects):
            self._left.setdefault(subject, deque()).append(place)
        self._lanes: Counter[str] = Counter()
        """How many runners took a job about it last."""
        self._subjects = tuple(subjects)

    def after(self, runner: object, place: int | None) -> int | None:
        """The next job for the `runner` that did `place` last, None where it has not begun: one
        about the same subject, else about one that no runner is at, else about any of which
        something is left. None where all are handed out."""
        if not self._left:
            return None
        last = None if place is None else self._subjects[place]
        if last is not None and last in self._left:
            return self._take(last)
        if last is not None:
            self._lanes[last] -= 1
        # A subject that no runner is at comes before those that others are at, the longest first.
        found = min(self._left, key=lambda item: (self._lanes[item] > 0, -len(self._left[item])))
        self._lanes[found] += 1
        return self._take(found)

    def _take(self, subject: str) -> int:
        places = self._left[subject]
        place = places.popleft()
        if not places:
            del self._left[subject]
        return place


@dataclass(frozen=True)
class WorkerPlace:
    """Where a runner works: a device, and the folder of the gate that all runners of it share.

    `gate` is None on the CPU; `locks` is the folder that tells the users of one machine's GPUs
    apart; `timed_cpus` are left to what is timed on the device; `lanes` share the machine's CPUs.
    """

    device: str
    gate: str | None
    locks: Path
    timed_cpus: tuple[int, ...] = ()
    lanes: int = 1


@dataclass(frozen=True)
class JobResult(Generic[J, A]):
    """A job with its answer, or with what ended it: `error` is what it raised, BrokenProcessPool
    where its process died, `hung` where it was ended at its limit."""

    job: J
    device: str
    answer: A | None = None
    error: BaseException | None = None
    hung: bool = False

    @property
    def died(self) -> bool:
        """True where the process is gone: it crashed, was killed, or hung past its limit."""
        return isinstance(self.error, BrokenProcessPool)


class DeviceRunner:
    """One process on a device, which does one job at a time; another one where it is lost."""

    def __init__(self, place: WorkerPlace, usable: Callable[[str], bool]) -> None:
        self.place = place
        self.gone = False
        """Its device is not usable any more."""
        self._usable = usable
        self._killed = False
        self._executor = _executor(place)

    def do(
        self,
        work: Callable[[J], A],
        job: J,
        limit_s: float | None,
        keep: Callable[[JobResult[J, A]], bool],
    ) -> JobResult[J, A]:
        """What becomes of `job`; where `keep` refuses it, the process is not used again."""
        until = math.inf if limit_s is None else time.monotonic() + limit_s
        future = self._submit(partial(_guarded, work, job, limit_s))
        if future is None:
            return JobResult(job, self.place.device, None, BrokenProcessPool("called off"), False)
        error = future.exception()
        hung = isinstance(error, BrokenProcessPool) and time.monotonic() >= until
        answer = future.result() if error is None else None
        ended = JobResult(job, self.place.device, answer, error, hung)
        if not self._killed and not keep(ended):
            self.gone = not self._usable(self.place.device)
            self._renew()
        return ended

    def _submit(self, asked: Callable[[], A]) -> Future[A] | None:
        """None once it has been killed. To begin takes seconds: what began meanwhile is ended."""
        future: Future[A] | None = None
        while future is None and not self._killed:
            try:
                future = self._executor.submit(asked)
            except BrokenProcessPool:  # it died while it was idle
                self._renew()
        if future is not None and self._killed:
            self.kill()
        return future

    def _renew(self) -> None:
        """The process before may have lost its GPU."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = _executor(self.place)

    def kill(self) -> None:
        """Nobody waits for a job half done."""
        self._killed = True
        for process in multiprocessing.active_children():
            process.terminate()

    def close(self) -> None:
        """End the process once it is idle."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def run_jobs(
    take: Callable[[], J | None],
    work: Callable[[J], A],
    devices: Sequence[str],
    locks: Path,
    *,
    limit_s: Callable[[J], float | None],
    keep: Callable[[JobResult[J, A]], bool] = lambda ended: ended.error is None,
    usable: Callable[[str], bool] = lambda device: True,
) -> Generator[JobResult[J, A]]:
    """Each job as it ends, one runner an entry of `devices`, which are held meanwhile.

    `take` gives the next job, as for `assign_jobs`. A process that ends takes only its own job with
    it; after an answer that `keep` refuses a runner has another process, and none at all where its
    device is not `usable` any more. What hangs past `limit_s` is ended.
    """
    with ExitStack() as held:
        held.enter_context(hold_devices(locks, devices))
        folders = {item: held.enter_context(_lock_folder(item)) for item in dict.fromkeys(devices)}
        cores = _timed_cores(devices)
        places = [
            WorkerPlace(item, folders[item], locks, cores.get(item, ()), len(devices))
            for item in devices
        ]
        runners = [held.enter_context(closing(DeviceRunner(place, usable))) for place in places]

        def next_job(runner: DeviceRunner, last: J | None) -> J | None:
            return None if runner.gone else take()

        def do(runner: DeviceRunner, job: J) -> JobResult[J, A]:
            return runner.do(work, job, limit_s(job), keep)

        for _, ended in held.enter_context(closing(assign_jobs(runners, next_job, do))):
            yield ended


def _timed_cores(devices: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """A core for each GPU on which several runners work; one alone has nobody beside it."""
    shared = [item for item, count in Counter(devices).items() if count > 1 and item != CPU]
    cores = cores_to_reserve(os.sched_getaffinity(0), len(shared))
    return dict(zip(shared, cores, strict=False))


@contextmanager
def _lock_folder(device: str) -> Iterator[str | None]:
    """The folder of a device's gate; None on the CPU, where nobody times."""
    if device == CPU:
        yield None
        return
    with tempfile.TemporaryDirectory(
        prefix="agentkernel-gate-", ignore_cleanup_errors=True
    ) as folder:
        yield folder


def _executor(place: WorkerPlace) -> ProcessPoolExecutor:
    """A process of its own, forked from one that has the imports behind it and no CUDA yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch"])
    # It imports for seconds before it ignores the terminal's interruptions, and would die of one
    # with a traceback.
    resource_tracker.ensure_running()  # whose start lets interruptions through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(place,))


_held = ExitStack()
"""What this process keeps until it ends, once it is a runner: its place among a device's."""


def _prepare(place: WorkerPlace) -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # of those that came in the meantime
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, handler)
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if place.device == CPU else place.device
    if place.gate is None:
        os.environ.pop(gpu_lock.FOLDER, None)
    else:
        os.environ[gpu_lock.FOLDER] = place.gate
    end_after_parent()
    keep_off(place.timed_cpus)
    os.environ[LANES] = str(place.lanes)
    _held.enter_context(join_devices(place.locks, place.device))


def _guarded(work: Callable[[J], A], job: J, limit_s: float | None) -> A:
    """`work`, in a process that ends itself where the job hangs."""
    if limit_s is None:
        return work(job)
    timer = threading.Timer(limit_s, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        return work(job)
    finally:
        timer.cancel()
