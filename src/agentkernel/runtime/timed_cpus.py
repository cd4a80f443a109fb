"""CPUs that only timed processes use while several problems share a GPU.

A module of many short kernels is as slow as its launches. What compiles beside it, on the other
thread of its core above all, makes them late by more than two candidates differ. So a bench keeps
one core a GPU free, and what is timed there may run on it too. It is not bound to it: where others
on the machine use that core, the system moves it on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "AGENTKERNEL_TIMED_CPUS"
"""Numbers of CPUs with commas between them; processes that a lane starts inherit it."""
LEAST_CPUS = 8
"""With fewer for a GPU, what compiles needs all of them."""
LANES = "AGENTKERNEL_LANES"
"""How many lanes of a bench work on this machine; processes that a lane starts inherit it."""
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores_to_reserve(cpus: Iterable[int], gpus: int) -> tuple[tuple[int, ...], ...]:
    """One core of `cpus` for each of the GPUs, from the end: the numbers of its threads. Empty
    where there are less than LEAST_CPUS a GPU."""
    free = sorted(cpus)
    if gpus == 0 or len(free) < gpus * LEAST_CPUS:
        return ()
    cores: list[tuple[int, ...]] = []
    while len(cores) < gpus:
        core = tuple(cpu for cpu in threads_of_core(free[-1]) if cpu in free)
        free = [cpu for cpu in free if cpu not in core]
        cores.append(core)
    return tuple(cores)


def threads_of_core(cpu: int) -> tuple[int, ...]:
    """The CPUs that share a core with `cpu`, itself among them. Where the system names it alone, as
    a virtual machine may, the other one of its pair: there threads of a core have such numbers."""
    found = {cpu}
    with suppress(OSError, ValueError):
        text = Path(TOPOLOGY.format(cpu)).read_text(encoding="utf-8")
        found |= set(cpu_numbers(text))
    return tuple(sorted(found if len(found) > 1 else {cpu, cpu ^ 1}))


def cpu_numbers(text: str) -> list[int]:
    """`0,4-6` -> 0, 4, 5, 6. Raises ValueError."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def keep_off(core: Sequence[int]) -> None:
    """From now on this process, with what it starts, works beside `core` and times on it."""
    others = os.sched_getaffinity(0) - set(core)
    if core and others:
        os.environ[VARIABLE] = ",".join(map(str, core))
        os.sched_setaffinity(0, others)


def compiling_cpus() -> int:
    """CPUs that this process may fill with compilers: all that it may use or, in a bench, twice its
    lane's part of them, since lanes also wait, judge and time."""
    cpus = len(os.sched_getaffinity(0))
    return max(1, min(cpus, 2 * cpus // _lanes()))


def lane_cpus() -> int:
    """A lane's part of the CPUs that this process may use; all of them outside of a bench."""
    return max(1, len(os.sched_getaffinity(0)) // _lanes())


def _lanes() -> int:
    lanes = os.environ.get(LANES, "")
    return max(1, int(lanes)) if lanes.isdigit() else 1


def timed_cpus() -> tuple[int, ...]:
    """The CPUs that are kept free for what is timed; none outside of a bench."""
    return tuple(cpu_numbers(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else ()


@contextmanager
def on_timed_cpus(pids: Iterable[int]) -> Iterator[None]:
    """Meanwhile the leading threads of `pids`, of which one works at a time, may use the timed CPUs
    beside their own. Where there are none, or the system does not let us, nothing changes."""
    core = timed_cpus()
    before: dict[int, set[int]] = {}
    for pid in pids if core else ():
        with suppress(OSError):
            allowed = os.sched_getaffinity(pid)
            os.sched_setaffinity(pid, {*allowed, *core})
            before[pid] = allowed
    try:
        yield
    finally:
        for pid, allowed in before.items():
            with suppress(OSError):
                os.sched_setaffinity(pid, allowed)
