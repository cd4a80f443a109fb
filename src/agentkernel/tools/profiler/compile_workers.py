"""torch.compile in a baseline process: its use of the GPU lock, its workers and its deadline.

The compiler itself runs while others time, behind all other compilers at the processors; where it
benchmarks kernels it holds the lock shared, since its benchmarker takes the shortest of many calls,
and has its usual priority: others wait until it is through. Both apply only to requests that the
parent awaits without the lock: in all others the parent holds it.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import cast

from agentkernel.runtime import gpu_lock
from agentkernel.runtime.pool import BASELINE_NICE, at_priority, lower_priority
from agentkernel.runtime.timed_cpus import lane_cpus

Context = Callable[[], AbstractContextManager[None]]
TICK_S = 0.1
MOST_WORKERS = 4
PROCESSES = 2
"""Baseline processes that compile side by side in a run: torch.compile's and max-autotune's."""


class Deadline:
    """Calls `expired` once `limit_s` of wall time are over; waiting at the gate does not count."""

    def __init__(self) -> None:
        self._left_s: float | None = None
        self.remained_s = 0.0
        """What the last part left of its time."""
        self._waits = 0
        self._lock = threading.Lock()

    @contextmanager
    def within(self, limit_s: float, expired: Callable[[], None]) -> Iterator[None]:
        """Watch over a part; what ends in time is never cut off."""
        done = threading.Event()
        self._left_s = limit_s
        watch = threading.Thread(target=self._watch, args=(done, expired), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()
            self.remained_s = max(self._left_s, 0.0)
            self._left_s = None

    def _watch(self, done: threading.Event, expired: Callable[[], None]) -> None:
        before = time.monotonic()
        while self._left_s is not None and not done.wait(min(TICK_S, max(self._left_s, 0.0))):
            now = time.monotonic()
            if not self._waits:
                self._left_s -= now - before
            before = now
            if self._left_s <= 0:
                expired()
                return

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A part that does not count."""
        with self._lock:
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1

    @contextmanager
    def through(self, lock: Context) -> Iterator[None]:
        """`door()`, of which neither the way in nor the way out counts."""
        with ExitStack() as leaving:
            with self.waiting():
                inside = ExitStack()
                inside.enter_context(lock())
            leaving.callback(self._leave, inside)
            yield

    def _leave(self, inside: ExitStack) -> None:
        with self.waiting():
            inside.close()


class CompilerLocks:
    """The gate as seen from inside of torch.compile; closed (nothing happens) unless opened."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._open = False
        self._usual_nice = os.getpriority(os.PRIO_PROCESS, 0)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A request that the parent awaits without holding the gate: what uses the GPU in it goes
        through the doors."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Work of the compiler, which gives way to whatever else the machine does."""
        with at_priority(BASELINE_NICE):
            yield

    @contextmanager
    def working(self) -> Iterator[None]:
        """Calls that use the GPU."""
        with at_priority(self._usual_nice), self._through(gpu_lock.shared):
            yield

    @contextmanager
    def without_gpu(self) -> Iterator[None]:
        """The compiler's part."""
        with self._through(gpu_lock.without_gpu):
            yield

    @contextmanager
    def _through(self, lock: Context) -> Iterator[None]:
        if not self._open:
            yield
            return
        with self._deadline.through(lock):
            yield


def patch_compiler(locks: CompilerLocks) -> None:
    """From now on TorchInductor goes through `locks`. Names differ between versions of torch:
    what is not there is left out, and the benchmarker below the tuners catches the rest."""
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.runtime.benchmarking as benchmarking
    import torch._inductor.select_algorithm as select

    if hasattr(select, "PRINT_AUTOTUNE"):
        select.PRINT_AUTOTUNE = False  # its tables would push a failure out of the log's tail
    wrap(compile_fx, "compile_fx", locks.without_gpu)
    # Each benchmark by itself, not a tuner's whole list of them: one that is slow for a minute
    # must not keep the others from timing for so long.
    for owner in vars(benchmarking).values():
        if inspect.isclass(owner) and owner.__module__ == benchmarking.__name__:
            wrap(owner, "benchmark_gpu", locks.working)


def start_compile_workers() -> None:
    """TorchInductor's compile processes give way to what times. On Linux a process inherits the
    priority of the thread that starts it, so that one is a thread for this alone; where this torch
    has no such pool, it starts what it needs by itself."""
    from torch._inductor.async_compile import AsyncCompile

    warm = getattr(AsyncCompile, "warm_pool", None)
    if warm is None:
        return

    def start() -> None:
        lower_priority(0, BASELINE_NICE)
        warm()

    thread = threading.Thread(target=start, name="compile-workers")
    thread.start()
    thread.join()


def compile_threads() -> int:
    """How many of them a process gets: its share of the lane's CPUs."""
    return max(1, min(MOST_WORKERS, lane_cpus() // PROCESSES))


def wrap(owner: object, name: str, context: Context) -> None:
    """Let every call of `owner.name`, where `owner` itself defines it, run inside `context()`."""
    held = vars(owner).get(name) if owner is not None else None
    kind = type(held) if isinstance(held, staticmethod | classmethod) else None
    inner = held.__func__ if isinstance(held, staticmethod | classmethod) else held
    if not callable(inner):
        return
    function = cast("Callable[..., object]", inner)

    @functools.wraps(function)
    def inside(*args: object, **kwargs: object) -> object:
        with context():
            return function(*args, **kwargs)

    setattr(owner, name, inside if kind is None else kind(inside))
