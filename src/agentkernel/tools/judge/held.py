"""How much of a device does each stage of a case hold, beside what the memory plan says?

The device itself is asked how much is free, every few milliseconds: what the candidate's process
holds counts as well as what this one does. Where others use the device meanwhile, theirs counts
too, which the note cannot tell apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentkernel.tools.memory_plan import MemoryPlan, gigabytes

POLL_S = 0.004
WORTH_BYTES = 1 << 30
"""A plan of less is not held against anything: contexts and allocators' blocks weigh more."""


class Held:
    """The most that was held in each stage, by its name. `free` says how many bytes are free now;
    None where there is no device to ask."""

    def __init__(self, plan: MemoryPlan, free: Callable[[], int] | None) -> None:
        self._plan = plan
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

    def tell(self, shape: str, note: Callable[[str], None]) -> None:
        """Note `eager 9.66 GB of 9.91 GB planned, ...`; nothing where nothing was looked at."""
        planned = {stage.name: stage.device for stage in self._plan.stages}
        parts = [
            f"{name} {gigabytes(most)} of {gigabytes(planned[name])} planned"
            for name, most in self._most.items()
            if name in planned
        ]
        if parts:
            note(f"device memory at {shape}: {', '.join(parts)}")

    def _watch(self, name: str, free: Callable[[], int], ended: threading.Event) -> None:
        while True:
            last = ended.is_set()
            held = self._plan.room.free - free()
            self._most[name] = max(self._most.get(name, 0), held)
            if last:
                return
            ended.wait(POLL_S)


def free_of(device: str) -> Callable[[], int] | None:
    """Asks a CUDA device; None on the CPU."""
    if device == "cpu":
        return None
    import torch

    return lambda: torch.cuda.mem_get_info()[0]
