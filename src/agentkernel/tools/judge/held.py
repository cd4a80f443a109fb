"""How much of a device does each stage of a case hold, beside what the memory plan says?

The device itself is asked how much is free, every few milliseconds: what the candidate's process
holds counts as well as what this one does, but for what this one's allocator keeps for the next
tensor and gives back where the device is short. Where others share the device it cannot tell theirs
apart, and nobody looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentkernel.runtime import gate
from agentkernel.tools.judge.memory_plan import MemoryPlan, gigabytes

POLL_S = 0.004
WORTH_BYTES = 1 << 30
"""A plan of less is not held against anything: contexts and allocators' blocks weigh more."""


class MeasuredMemory:
    """The most that was held in each stage, by its name, over all cases of one shape. `free` says
    how many bytes are free now, None where there is nothing to ask; `before`: how many were when
    the plan was made."""

    def __init__(self, plan: MemoryPlan, free: Callable[[], int] | None, before: int) -> None:
        self._plan = plan
        self._before = before
        self._free = free if plan.peak.device >= WORTH_BYTES else None
        self._most: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Look at the device while the stage lasts."""
        if self._free is None:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(name, self._free, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    @property
    def text(self) -> str:
        """`eager 9.66 GB of 9.91 GB planned, ...`; "" where nothing was looked at."""
        planned = {stage.name: stage.device for stage in self._plan.stages}
        return ", ".join(
            f"{name} {gigabytes(most)} of {gigabytes(planned[name])} planned"
            for name, most in self._most.items()
            if name in planned
        )

    def _watch(self, name: str, free: Callable[[], int], ended: threading.Event) -> None:
        while True:
            last = ended.is_set()
            held = self._before - free()
            self._most[name] = max(self._most.get(name, 0), held)
            if last:
                return
            ended.wait(POLL_S)


def free_memory_reader(device: str) -> Callable[[], int] | None:
    """Asks a CUDA device; None on the CPU, and where other runs share the device."""
    if device == "cpu" or gate.has_other_users():
        return None
    import torch

    def free() -> int:
        kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0]) + kept

    return free
