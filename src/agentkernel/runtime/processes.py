"""How does a process that works for another end with it, and give way to what times?"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterable, Iterator

COMPILER_NICE = 10
TIMED_NICE = -10


def lower_priority(pid: int) -> None:
    """Lower the priority of the thread that leads process `pid` (0: of this thread) and of all that
    it starts from now on. For good: never where something is timed."""
    with contextlib.suppress(ProcessLookupError):
        # One that is lower already (under `nice`, or a Ray worker) may not be raised.
        if os.getpriority(os.PRIO_PROCESS, pid) < COMPILER_NICE:
            os.setpriority(os.PRIO_PROCESS, pid, COMPILER_NICE)


@contextlib.contextmanager
def raised_priority(pids: Iterable[int]) -> Iterator[None]:
    """Meanwhile the leading threads of `pids` get a processor before all who have not asked: a
    module of many short kernels is as slow as its launches. Where the system does not let us (it
    takes CAP_SYS_NICE), nothing changes."""
    changed = {pid: nice for pid in pids if (nice := _renice(pid, TIMED_NICE)) is not None}
    try:
        yield
    finally:
        for pid, nice in changed.items():
            _renice(pid, nice)


def _renice(pid: int, nice: int) -> int | None:
    """What it was before; None where it could not be changed."""
    try:
        before = os.getpriority(os.PRIO_PROCESS, pid)
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except OSError:  # no right to, or gone
        return None
    return before


def end_with_parent(line: int) -> None:
    """From now on this process and what it started end as soon as the other end of `line` (a pipe
    or socket that the parent holds) closes, in the middle of a compilation too. It must lead its
    process group."""
    ends = select.poll()
    ends.register(line, 0)

    def watch() -> None:
        ends.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
