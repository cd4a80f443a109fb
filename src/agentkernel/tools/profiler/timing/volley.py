"""What does a timed process do in a volley? Calls without pause until the parent says stop.

Runs in the candidate's worker and in the twin, the same lines for every side. Nothing that it
reports is believed by itself: the parent holds the clock, the inputs, the outputs and the count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.tools.profiler.timing.arena import (
    ARMED,
    DONE,
    GO,
    HEADER,
    KEEP,
    PROGRESS,
    RELEASE,
    STOP,
    Buffers,
    Layout,
    flush_regions,
    row,
)
from agentkernel.tools.profiler.timing.bench import (
    LONG_CALL_US,
    CallTimer,
    garbage_collection_paused,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

Function = Callable[..., object]
POISON_COPIES = 4
"""Freed blocks full of NaN an output, which the allocator hands out next: for the kept outputs, the
one before and the new one, so that no call waits for new memory."""
POISON_BYTES = 4 << 30
"""More than this is not poisoned: one block an output then."""
STRAY_S = 0.5
"""How long a volley waits for threads that its calls started."""


class BatchTimes(NamedTuple):
    """Microseconds of each call by this process's own clock, and threads still at work."""

    samples_us: tuple[float, ...]
    strays: int


class BatchAborted(Exception):
    """The parent went away, or stopped answering, in the middle of a volley."""


@dataclass
class BatchMemory:
    """A process's views of the shared memory."""

    control: NDArray[np.int64]
    rows: list[tuple[object, ...]]
    slots: list[list[torch.Tensor]]
    kept: list[list[torch.Tensor]]
    flush: list[torch.Tensor]
    limit_s: float
    resident: bool = False
    """The tensors are too large for one process to keep what another one needs next."""


def open_batch_memory(
    layout: Layout, values: Sequence[object], buffers: Buffers, limit_s: float
) -> BatchMemory:
    """`values`: the inputs in order, whose tensors the rows replace."""
    return BatchMemory(
        control=buffers.control.numpy(),
        rows=[_inputs(layout, values, buffers.pool, index) for index in range(layout.rows)],
        slots=[row(buffers.slots, layout.outputs, index) for index in range(layout.rows)],
        kept=[row(buffers.kept, layout.outputs, index) for index in range(layout.kept)],
        flush=list(flush_regions(buffers.flush, layout)),
        limit_s=limit_s,
        resident=layout.resident,
    )


def run_batch(
    ground: BatchMemory,
    bench: CallTimer,
    function: Function,
    calls: int,
    fills: int,
    last_us: float,
    *,
    holds: bool = True,
) -> BatchTimes:
    """Warm up, wait for the parent's word, call up to `calls` times, show what was kept.

    The parent chooses the row of inputs of each call, what each of the `fills` flushes before it
    writes and when to stop, all after this process said that it is ready. `holds` False: no output
    is kept past the next call, which is only for sides that nobody checks.
    """
    import torch

    known = set(threading.enumerate())
    with torch.no_grad(), garbage_collection_paused():
        _poison(ground.slots[0], 1 if ground.resident else POISON_COPIES)
        for _ in range(1 if last_us > LONG_CALL_US else 3):
            function(*ground.rows[0])
        watch = bench.stopwatch(calls)
        bench.wait()
        ground.control[ARMED] = 1
        _await(ground, GO, bench.device)
        order = ground.control[HEADER : HEADER + calls].tolist()
        tokens = ground.control[HEADER + len(ground.rows) :][: calls * fills].tolist()
        held: list[object] = []
        done = 0
        for index in range(calls):
            for region in range(index * fills, index * fills + fills):
                ground.flush[region].fill_(tokens[region])
            values = ground.rows[order[index] & (KEEP - 1)]
            watch.begin(index)
            found = function(*values)
            watch.end(index)
            copy_outputs(found, ground.slots[index])
            if holds and order[index] & KEEP and len(held) < len(ground.kept):
                held.append(found)
            done = index + 1
            ground.control[PROGRESS] = done
            if ground.control[STOP]:
                break
        strays = _drain(known)
        bench.wait()
        ground.control[DONE] = 1
        _await(ground, RELEASE, bench.device)
        for found, slots in zip(held, ground.kept, strict=False):
            copy_outputs(found, slots)
        bench.wait()
    return BatchTimes(watch.us(done), strays)


def copy_outputs(found: object, slots: Sequence[torch.Tensor]) -> None:
    """Copy a call's tensors to the parent's memory; what has another form stays undelivered."""
    import torch

    from agentkernel.tools.problem.structures import leaves_of

    leaves = [found] if isinstance(found, torch.Tensor) else leaves_of(found)
    tensors = [item for item in leaves if isinstance(item, torch.Tensor)]
    for item, slot in zip(tensors, slots, strict=False):
        if item.shape == slot.shape and item.dtype == slot.dtype:
            slot.copy_(item)


def outputs_of(found: object) -> list[list[object]]:
    """Dtype and shape of the tensors in `found`, for a Layout."""
    import torch

    from agentkernel.tools.problem.structures import leaves_of

    return [
        [str(item.dtype).removeprefix("torch."), list(item.shape)]
        for item in leaves_of(found)
        if isinstance(item, torch.Tensor)
    ]


def _inputs(
    layout: Layout, values: Sequence[object], pool: torch.Tensor, index: int
) -> tuple[object, ...]:
    tensors = iter(row(pool, layout.tensors, index))
    return tuple(
        value if spec is None else next(tensors)
        for spec, value in zip(layout.inputs, values, strict=True)
    )


def _poison(slots: Sequence[torch.Tensor], copies: int) -> None:
    """Memory that the next calls get from the allocator holds NaN, not an earlier answer."""
    import torch

    sizes = [slot.numel() * slot.element_size() for slot in slots]
    copies = copies if copies * sum(sizes) <= POISON_BYTES else 1
    blocks = [
        torch.empty(size, dtype=torch.uint8, device=slots[0].device)
        for size in sizes
        for _ in range(copies)
    ]
    for block in blocks:
        block.fill_(255)


def _await(ground: BatchMemory, word: int, device: str) -> None:
    """Spin until the parent sets `word`: sleeping would cost the clock 50 us."""
    end = time.monotonic() + ground.limit_s
    nap = 0.0 if device == "cuda" else 2e-5
    while not ground.control[word]:
        time.sleep(nap)
        if time.monotonic() > end:
            raise BatchAborted(f"no word {word} within {ground.limit_s:g} s")


def _drain(known: set[threading.Thread]) -> int:
    """Wait for threads that the calls started, inside the timed span; how many there were."""
    strays = [item for item in threading.enumerate() if item not in known]
    for item in strays:
        item.join(STRAY_S)
    return len(strays)
