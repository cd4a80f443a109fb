"""Who watches a candidate while it runs, and ends all of it? The launcher, outside of its locks.

It answers for every new process and thread, counts what they hold, and says on a pipe of its own
why it ended them: what a candidate prints cannot be mistaken for that. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass

from agentkernel.tools.sandbox import census
from agentkernel.tools.sandbox.syscalls import syscall_number
from agentkernel.tools.sandbox.waiting import readable

TICK_S = 0.1
DISK_TICK_S = 1.0
DISK_SHARE = 0.05
"""At most this share of the time goes into walking the scratch."""
RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""
NOTICE = struct.Struct("QIIiIQ6Q")
ANSWER = struct.Struct("Qqii")
CONTINUE = 1
CLONE = syscall_number("clone")
CLONE_THREAD = 0x10000
MOST_ENTRIES = 100_000
ALLOWANCE = struct.Struct("!Q")


@dataclass(frozen=True)
class WatchdogLimits:
    """What all processes of one candidate may hold together."""

    processes: int
    tasks: int
    memory_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class ProcessEnd:
    """Why the candidate's processes are gone."""

    cause: str
    note: str


class Watchdog:
    """`worker` is the launcher's child; `life` closes with the parent, which also says there how
    many bytes it shares; `listener_socket` brings the gate's listener."""

    def __init__(
        self,
        worker: int,
        life: int,
        listener_socket: socket.socket,
        scratch: str,
        bounds: WatchdogLimits,
    ) -> None:
        self._worker = worker
        self._life = life
        self._hatch: socket.socket | None = listener_socket
        self._scratch = scratch
        self._own_filesystem = os.path.ismount(scratch)
        self._device = os.stat(scratch).st_dev
        self._bounds = bounds
        self._listener = -1
        self._last = census.ProcessCount(1, 1, 0)
        self._shared_bytes = 0
        self._nameless_bytes = 0
        self._next_look_s = self._next_disk_s = 0.0
        os.set_blocking(life, False)

    def watch(self, wake: int) -> ProcessEnd | None:
        """Until the worker ends, breaks a bound (what then) or the parent goes away (None).
        `wake` becomes readable when a child changes."""
        while True:
            listener_socket = -1 if self._hatch is None else self._hatch.fileno()
            fds = [fd for fd in (self._life, wake, listener_socket, self._listener) if fd >= 0]
            ready = readable(fds, TICK_S)
            if self._life in ready and not self._read_allowance():
                return None
            if listener_socket in ready:
                self._take_listener()
            ended = (
                (self._reap(wake) if wake in ready else None)
                or (self._answer() if self._listener in ready else None)
                or self._check_resources()
            )
            if ended is not None:
                return ended

    def _read_allowance(self) -> bool:
        """Take the parent's word for what it shares; False where it is gone."""
        try:
            data = os.read(self._life, 4096)
        except BlockingIOError:
            return True
        if len(data) >= ALLOWANCE.size:
            self._shared_bytes = ALLOWANCE.unpack(data[-ALLOWANCE.size :])[0]
        return bool(data)

    def _reap(self, wake: int) -> ProcessEnd | None:
        """Every child that ended, orphans of the candidate among them."""
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return ProcessEnd("exit", "the worker went away")
            if pid == 0:
                return None
            if pid == self._worker:
                return describe_end(status)

    def _take_listener(self) -> None:
        if self._hatch is None:
            return
        with self._hatch, contextlib.suppress(OSError):
            _, fds, _, _ = socket.recv_fds(self._hatch, 16, 1)
            self._listener = fds[0] if fds else -1
        self._hatch = None

    def _answer(self) -> ProcessEnd | None:
        """Let one process or thread be made, or end all where there are too many already."""
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self._listener, RECEIVE, notice)
        except OSError as error:
            if error.errno not in (errno.EINTR, errno.ENOENT):
                os.close(self._listener)
                self._listener = -1
            return None
        notice_id, _, _, call, _, _, flags, *_ = NOTICE.unpack(notice)
        self._last = self._last.grown(thread=call == CLONE and bool(flags & CLONE_THREAD))
        ended = self._over_process_limit(self._last)
        if ended is not None:
            # Those that ended since the last look are counted above.
            self._last = census.count_processes(census.descendants(os.getpid())).grown(thread=False)
            ended = self._over_process_limit(self._last)
        if ended is None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._listener, SEND, ANSWER.pack(notice_id, 0, 0, CONTINUE))
        return ended

    def _check_resources(self) -> ProcessEnd | None:
        """Count everything, where it is time to."""
        now = time.monotonic()
        if now < self._next_look_s:
            return None
        self._next_look_s = now + TICK_S
        pids = census.descendants(os.getpid())
        found = self._last = census.count_processes(pids)
        return (
            self._over_process_limit(found)
            or self._over_memory_limit(pids, found)
            or self._over_disk_limit(pids)
        )

    def _over_process_limit(self, found: census.ProcessCount) -> ProcessEnd | None:
        bounds = self._bounds
        if found.processes > bounds.processes:
            return ProcessEnd("processes", f"more than {bounds.processes} processes")
        if found.tasks > bounds.tasks:
            return ProcessEnd("processes", f"more than {bounds.tasks} threads")
        return None

    def _over_memory_limit(self, pids: list[int], found: census.ProcessCount) -> ProcessEnd | None:
        most = self._bounds.memory_bytes
        spare = most + self._shared_bytes - self._nameless_bytes
        if found.memory_bytes <= spare:
            return None
        if len(pids) > 1 and census.shared_out_bytes(pids) <= spare:
            return None
        return ProcessEnd("memory", f"over {most} bytes")

    def _over_disk_limit(self, pids: list[int]) -> ProcessEnd | None:
        now = time.monotonic()
        if now < self._next_disk_s:
            return None
        nameless = census.unlinked_files(pids, self._device)
        self._nameless_bytes = nameless.elsewhere
        if self._own_filesystem:
            disk = census.filesystem_use(self._scratch)
        else:
            disk = census.folder_use(self._scratch, MOST_ENTRIES)
            disk = census.DiskUse(disk.nbytes + nameless.on_device, disk.entries)
        spent = time.monotonic() - now
        self._next_disk_s = now + max(DISK_TICK_S, spent / DISK_SHARE)
        if disk.nbytes > self._bounds.scratch_bytes:
            return ProcessEnd(
                "disk", f"more than {self._bounds.scratch_bytes} bytes in the scratch"
            )
        if disk.entries > MOST_ENTRIES:
            return ProcessEnd("disk", f"more than {MOST_ENTRIES} files in the scratch")
        return None


def describe_end(status: int) -> ProcessEnd:
    """What waitpid's `status` says of the worker."""
    if os.WIFSTOPPED(status):
        name = signal.Signals(os.WSTOPSIG(status)).name
        return ProcessEnd("stopped", f"the worker was stopped by {name}")
    if os.WIFSIGNALED(status):
        name = _signal_name(os.WTERMSIG(status))
        return ProcessEnd("signal", f"the worker was ended by {name}")
    code = os.waitstatus_to_exitcode(status)
    return ProcessEnd("exit", f"the worker ended with exit code {code}")


def report_end(fd: int, ended: ProcessEnd) -> None:
    """Say on the parent's pipe why all is over."""
    line = json.dumps({"cause": ended.cause, "note": ended.note}) + "\n"
    with contextlib.suppress(OSError):
        os.write(fd, line.encode())


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
