"""How much memory do a worker and its children hold?"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path


def private_bytes(pid: int) -> int:
    """Resident anonymous memory of `pid` and everything below it, in bytes; 0 where it is gone."""
    children = _children()
    total = 0
    pending = [pid]
    while pending:
        number = pending.pop()
        pending.extend(children[number])
        total += _anonymous(number)
    return total


def _children() -> defaultdict[int, list[int]]:
    """Parent -> children, of every process."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(words[1])].append(int(entry.name))
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
