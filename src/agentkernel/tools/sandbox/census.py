"""How much do a candidate's processes hold: how many are they, with what memory, on what disk?

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

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
