"""The watchdog of a candidate's processes: what they hold, and the end of all of them.

It runs in the launcher, outside of the locks. It answers for every new process and thread,
counts memory, processes and disk, and reports on a pipe of its own why it ended them, which
nothing that a candidate prints can imitate. Standard library only.

Descriptors are waited for with poll(2): select(2) takes no number above 1023.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import select
import signal
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agentkernel.tools.sandbox.lockdown import syscall_number


def readable(fds: Iterable[int], timeout_s: float) -> set[int]:
    """Those that have something, or have ended, waited for until one does."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(math.ceil(timeout_s * 1000))}


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
WORD = struct.Struct("!Q")
"""What the parent says on the life line: a number of bytes that it shares, or one of these."""
HALT, GO_ON = 2**64 - 1, 2**64 - 2


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
    many bytes it shares and when all have to stand still; `listener_socket` brings the gate's
    listener."""

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
        self._last = ProcessCount(1, 1, 0)
        self._shared_bytes = 0
        self._nameless_bytes = 0
        self._halted = False
        self._next_look_s = self._next_disk_s = 0.0
        os.set_blocking(life, False)

    def watch(self, wake: int) -> ProcessEnd | None:
        """Until the worker ends, breaks a bound (what then) or the parent goes away (None).
        `wake` becomes readable when a child changes."""
        while True:
            listener_socket = -1 if self._hatch is None else self._hatch.fileno()
            fds = [fd for fd in (self._life, wake, listener_socket, self._listener) if fd >= 0]
            ready = readable(fds, TICK_S)
            if self._life in ready and not self._hear():
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

    def _hear(self) -> bool:
        """Do as the parent says; False where it is gone."""
        try:
            data = os.read(self._life, WORD.size * 512)
        except BlockingIOError:
            return True
        for (word,) in WORD.iter_unpack(data):
            if word in (HALT, GO_ON):
                self._halt(halted=word == HALT)
            else:
                self._shared_bytes = word
        return bool(data)

    def _halt(self, *, halted: bool) -> None:
        self._halted = halted
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP if halted else signal.SIGCONT)

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
            if pid == self._worker and not (self._halted and os.WIFSTOPPED(status)):
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
            self._last = count_processes(descendants(os.getpid())).grown(thread=False)
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
        pids = descendants(os.getpid())
        found = self._last = count_processes(pids)
        return (
            self._over_process_limit(found)
            or self._over_memory_limit(pids, found)
            or self._over_disk_limit(pids)
        )

    def _over_process_limit(self, found: ProcessCount) -> ProcessEnd | None:
        bounds = self._bounds
        if found.processes > bounds.processes:
            return ProcessEnd("processes", f"more than {bounds.processes} processes")
        if found.tasks > bounds.tasks:
            return ProcessEnd("processes", f"more than {bounds.tasks} threads")
        return None

    def _over_memory_limit(self, pids: list[int], found: ProcessCount) -> ProcessEnd | None:
        most = self._bounds.memory_bytes
        spare = most + self._shared_bytes - self._nameless_bytes
        if found.memory_bytes <= spare:
            return None
        if len(pids) > 1 and shared_out_bytes(pids) <= spare:
            return None
        return ProcessEnd("memory", f"over {most} bytes")

    def _over_disk_limit(self, pids: list[int]) -> ProcessEnd | None:
        now = time.monotonic()
        if now < self._next_disk_s:
            return None
        nameless = unlinked_files(pids, self._device)
        self._nameless_bytes = nameless.elsewhere
        if self._own_filesystem:
            disk = filesystem_use(self._scratch)
        else:
            disk = folder_use(self._scratch, MOST_ENTRIES)
            disk = DiskUse(disk.nbytes + nameless.on_device, disk.entries)
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


BLOCK = 512


@dataclass(frozen=True)
class ProcessCount:
    """Processes alive, their threads, and the bytes that are resident and no file's on a disk."""

    processes: int
    tasks: int
    memory_bytes: int

    def grown(self, *, thread: bool) -> ProcessCount:
        """With one more thread, or one more process."""
        return replace(self, processes=self.processes + (not thread), tasks=self.tasks + 1)


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, nearest first."""
    children = children_of if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _scan()
    found: list[int] = []
    pending = [pid]
    while pending:
        new = children(pending.pop())
        found += new
        pending += new
    return found


def count_processes(pids: Iterable[int]) -> ProcessCount:
    """What `pids` are and hold; who is gone or a zombie counts for nothing."""
    processes = tasks = memory = 0
    for pid in pids:
        fields = _status(pid)
        if fields.get("State", "Z").startswith(("Z", "X")):
            continue
        processes += 1
        tasks += int(fields.get("Threads", "1"))
        memory += _kib(fields, "RssAnon") + _kib(fields, "RssShmem")
    return ProcessCount(processes, tasks, memory)


def private_bytes(pid: int) -> int:
    """Resident anonymous memory of `pid` and everything below it, in bytes; 0 where it is gone."""
    return sum(_kib(_status(number), "RssAnon") for number in [pid, *descendants(pid)])


def shared_out_bytes(pids: Iterable[int]) -> int:
    """The same memory as `count_processes`'s, with pages that several hold split among them.
    Slower."""
    total = 0
    for pid in pids:
        fields = _fields(f"/proc/{pid}/smaps_rollup")
        total += _kib(fields, "Pss_Anon") + _kib(fields, "Pss_Shmem")
    return total


@dataclass(frozen=True)
class DiskUse:
    """What lies in a folder: bytes on its disk, and entries."""

    nbytes: int
    entries: int


def folder_use(path: str, most_entries: int) -> DiskUse:
    """Walk `path`, never through a link; stops once past `most_entries`."""
    nbytes = entries = 0
    pending = [path]
    while pending and entries <= most_entries:
        try:
            with os.scandir(pending.pop()) as listed:
                for entry in listed:
                    entries += 1
                    nbytes += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if entries > most_entries:
                        break
        except OSError:
            continue
    return DiskUse(nbytes, entries)


def filesystem_use(path: str) -> DiskUse:
    """What lies on the file system of `path`, all of it."""
    status = os.statvfs(path)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return DiskUse(used, status.f_files - status.f_ffree)


@dataclass(frozen=True)
class UnlinkedFiles:
    """Bytes in files that no folder lists: deleted ones on the device asked for, and those
    elsewhere (memory files)."""

    on_device: int
    elsewhere: int


def unlinked_files(pids: Iterable[int], device: int) -> UnlinkedFiles:
    """What `pids` hold open, or on `device` mapped, without a name."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for number in _listed(f"/proc/{pid}/fd"):
            try:
                status = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_blocks:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
        for inode, nbytes in _mapped_and_deleted(pid, device).items():
            sizes.setdefault((device, inode), nbytes)
    here = sum(nbytes for (own, _), nbytes in sizes.items() if own == device)
    return UnlinkedFiles(here, sum(sizes.values()) - here)


def _mapped_and_deleted(pid: int, device: int) -> dict[int, int]:
    """Deleted files of which perhaps only a mapping is left: what is mapped of them, by inode."""
    mapped: defaultdict[int, int] = defaultdict(int)
    for line in _text(f"/proc/{pid}/maps").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].endswith("(deleted)"):
            major, minor = (int(part, 16) for part in words[3].split(":"))
            if os.makedev(major, minor) == device:
                first, last = (int(end, 16) for end in words[0].split("-"))
                mapped[int(words[4])] += last - first
    return mapped


def children_of(pid: int) -> list[int]:
    """What the kernel lists as children of each thread of `pid`, ended but unreaped ones too."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _scan() -> Callable[[int], list[int]]:
    """The same where the kernel keeps no such lists: every process is asked for its parent."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(words[1])].append(int(entry))
    return lambda pid: found[pid]


def _status(pid: int) -> dict[str, str]:
    return _fields(f"/proc/{pid}/status")


def _fields(path: str) -> dict[str, str]:
    parts = (line.partition(":") for line in _text(path).splitlines())
    return {key: value.strip() for key, colon, value in parts if colon}


def _text(path: str) -> str:
    """What is in a file of /proc; "" where its process is gone."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _kib(fields: dict[str, str], name: str) -> int:
    return int(fields.get(name, "0").split()[0]) * 1024
