"""How much memory do a worker and its children hold?"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path


def private_bytes(pid: int) -> int:
    """Resident anonymous memory of `pid` and everything below it, in bytes; 0 where it is gone."""
    children = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _scan()
    total = 0
    pending = [pid]
    while pending:
        number = pending.pop()
        pending.extend(children(number))
        total += _anonymous(number)
    return total


def _children(pid: int) -> list[int]:
    """What the kernel lists as children of each thread of `pid`."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return found
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


def _anonymous(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
