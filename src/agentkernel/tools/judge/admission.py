"""Admission to a GPU's memory: who shares a device reserves what its plan holds.

The ledger is a file beside the gate's, which the processes that share a GPU lock. Without a shared
gate (`tools.gate`) there is nobody to wait for.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentkernel.domain.base import Frozen
from agentkernel.domain.problem import ShapeSet
from agentkernel.runtime import gate
from agentkernel.runtime.devices import free_memory
from agentkernel.storage.disk import open_append
from agentkernel.tools.judge.memory_count import bytes_of, count_module, meta_inputs
from agentkernel.tools.problem.problems import LoadedProblem

LEDGER = "memory"
POLL_S = 0.2
COPIES = 5
"""What eager holds, so many times: the candidate's and eager's results and the fp64 oracle, which
counts twice, are there at once where they fit; the baselines' process keeps its own beside them."""
OVERHEAD_BYTES = 3 << 30
"""Contexts of four processes, regions for flushes, and what libraries allocate for themselves."""


_granted: list[int] = []
"""What this process holds of a device that it shares, in bytes; empty where it shares none."""


class Entry(Frozen):
    """A process and the device memory that it holds, or waits for. `room` is what all that share
    the device may hold together, as the one saw it that entered an empty device."""

    pid: int
    nbytes: int
    room: int | None = None

    @property
    def admitted(self) -> bool:
        return self.room is not None


@contextmanager
def reserved(nbytes: int, capacity: int) -> Iterator[None]:
    """Hold `nbytes` of a device of `capacity` bytes from the first use of it in the block, which
    waits until they are free: who captures and drafts meanwhile keeps nobody from the device. Who
    wants more than there is gets the device alone. What processes of others hold of it is no room.

    First come, first served: one that needs much is not passed by others that need little. What a
    process that died held is free again.
    """
    folder = gate.lock_folder()
    if folder is None or not gate.has_other_users():
        yield
        return
    own = Entry(pid=os.getpid(), nbytes=nbytes)
    ledger = folder / LEDGER

    def enter() -> None:
        _change(ledger, lambda entries: [*_without(entries, own.pid), own])
        while (granted := _granted_bytes(ledger, own, capacity)) is None:
            time.sleep(POLL_S)
        _granted.append(granted)

    try:
        with gate.before_first_use(enter):
            yield
    finally:
        _granted.clear()
        _change(ledger, lambda entries: _without(entries, own.pid))


def wanted_bytes(loaded: LoadedProblem) -> int:
    """Device memory of a run on `loaded`: a judgement and a timing with every copy that they make
    where there is room, at its largest shape set. `OVERHEAD_BYTES` where the module does not run
    without storage."""
    return OVERHEAD_BYTES + COPIES * max(
        _eager_bytes(loaded, inputs) for inputs in loaded.problem.shape_sets
    )


def _eager_bytes(loaded: LoadedProblem, inputs: ShapeSet) -> int:
    try:
        module = loaded.build(seed=0, device="meta")
        counted = count_module(module, inputs)
    except Exception:  # noqa: BLE001 - the user's forward may raise anything
        return 0
    return bytes_of([*meta_inputs(inputs), *module.state_dict().values()]) + counted.peak


def device_free() -> int:
    """Bytes of the current CUDA device that may be taken now: what is free, and where others share
    the device no more than what was reserved and is not the baselines' share or held here."""
    import torch

    gate.announce_use()
    free, _ = torch.cuda.mem_get_info()
    if not _granted:
        return free
    own = _granted[-1] * (COPIES - 1) // COPIES - torch.cuda.memory_reserved()
    return max(0, min(free, own))


def ran_out(text: str | None) -> bool:
    """True where the reason of a failure is a device without room."""
    return text is not None and "out of memory" in text.lower()


def _granted_bytes(ledger: Path, own: Entry, capacity: int) -> int | None:
    """Enter where nobody who came earlier waits, and the rest is enough; None where not."""

    def enter(entries: list[Entry]) -> list[Entry]:
        alive = [item for item in entries if _lives(item.pid)]
        place = next(i for i, item in enumerate(alive) if item.pid == own.pid)
        rooms = [item.room for item in alive if item.room is not None]
        room = min(rooms) if rooms else min(capacity, free_memory() or capacity)
        granted = min(own.nbytes, room)
        held = sum(item.nbytes for item in alive if item.admitted)
        if all(item.admitted for item in alive[:place]) and held + granted <= room:
            alive[place] = own.model_copy(update={"nbytes": granted, "room": room})
        return alive

    found = (item for item in _change(ledger, enter) if item.pid == own.pid and item.admitted)
    return next((item.nbytes for item in found), None)


def _without(entries: list[Entry], pid: int) -> list[Entry]:
    return [item for item in entries if item.pid != pid]


def _change(ledger: Path, change: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
    """The entries after `change`, which nobody else sees half done."""
    with open_append(ledger) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        entries = change(_read(file))
        file.seek(0)
        file.truncate()
        file.write(json.dumps([item.model_dump() for item in entries]).encode())
    return entries


def _read(file: IO[bytes]) -> list[Entry]:
    file.seek(0)
    text = file.read()
    return [Entry.model_validate(item) for item in json.loads(text)] if text else []


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
