"""How much memory do a worker and its children hold?"""

from __future__ import annotations

from pathlib import Path


def private_bytes(pid: int) -> int:
    """Resident anonymous memory of `pid` and everything below it, in bytes; 0 where it is gone."""
    total = 0
    pending = [pid]
    while pending:
        number = pending.pop()
        pending.extend(_children(number))
        total += _anonymous(number)
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    except OSError:
        return found
    return found


def _anonymous(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
