"""How long does a volley take by the parent's own clock, and what is there at its end?

The clock starts before the inputs are written and stops after the parent has read the outputs: what
is computed earlier has no inputs, what is computed later is not read. DESIGN: docs/timing.md.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.sides import RequestChannel, is_time
from agentkernel.tools.profiler.timing.answers import OutputProbe
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
)
from agentkernel.tools.profiler.timing.bench import subtract_event_time
from agentkernel.tools.profiler.timing.fresh import FreshInputs, FreshInputsInPlace

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from agentkernel.tools.sandbox.protocol import JSON

FLUSH_SAMPLES = 64
"""Words of each flush region that must hold what this call's flush writes."""


class BatchPlan(NamedTuple):
    """A volley of at least `wanted` calls (at most `calls`); `order` has a row of inputs for each.
    `seed` decides the inputs, `kept` the calls whose outputs are looked at again, `fills` how many
    flush regions are written before each call."""

    calls: int
    wanted: int
    order: tuple[int, ...]
    kept: tuple[int, ...]
    seed: int
    fills: int = 1


class BatchResult(NamedTuple):
    """A volley's end: `found` [calls, places] of each output, `again` the same of the kept ones."""

    plan: BatchPlan
    wall_us: float
    calls: int
    samples_us: tuple[float, ...]
    strays: int
    found: list[torch.Tensor]
    again: list[torch.Tensor]
    flushed: bool


@dataclass(frozen=True)
class TimedProcess:
    """One timed process as the parent sees it: the line to it, and the shared memory. `event_us` is
    taken off the time that its events give a call."""

    line: RequestChannel
    buffers: Buffers
    layout: Layout
    device: str
    limit_s: float
    event_us: float = 0.0


def plan_batch(calls: int, layout: Layout, chosen: random.Random, fills: int = 1) -> BatchPlan:
    """A volley of `calls` calls at most; how many it becomes, the timed process is not told."""
    calls = min(calls, layout.rows // fills)
    wanted = chosen.randint(max(1, (2 * calls + 2) // 3), calls)
    order = tuple(chosen.sample(range(layout.rows), calls))
    kept = chosen.sample(range(wanted), min(layout.kept, max(wanted - 1, 0)))
    return BatchPlan(calls, wanted, order, tuple(sorted(kept)), chosen.getrandbits(40), fills)


def time_batch(
    timed_process: TimedProcess,
    side: str,
    plan: BatchPlan,
    fresh: FreshInputs | FreshInputsInPlace,
    look: OutputProbe,
) -> BatchResult | SideFailed:
    """One volley of `side`. A Lost where the process fails, hangs or answers in another form."""
    control = timed_process.buffers.control.numpy()
    control[:] = 0
    _poison(timed_process)
    tokens = [random.SystemRandom().getrandbits(31) for _ in range(plan.calls * plan.fills)]
    request = {"do": "volley", "side": side, "calls": plan.calls, "fills": plan.fills}
    asked = _PendingRequest(timed_process, request)
    asked.start()
    if not _reached(control, ARMED, asked, timed_process):
        return asked.failure(side)
    begin = time.perf_counter()
    fresh.write(timed_process.buffers.pool, plan.seed)
    control[HEADER : HEADER + plan.calls] = _order_words(plan)
    control[HEADER + timed_process.layout.rows :][: len(tokens)] = tokens
    control[GO] = 1
    if not _reached(control, DONE, asked, timed_process, stop_at=plan.wanted):
        return asked.failure(side)
    calls = int(min(max(int(control[PROGRESS]), 1), plan.calls))
    found = look.at(timed_process.buffers.slots, calls)
    flushes = _flush_words(timed_process, calls * plan.fills)
    wall_us = (time.perf_counter() - begin) * 1e6
    control[RELEASE] = 1
    answer = asked.answer(side, calls)
    if isinstance(answer, SideFailed):
        return answer
    flushed = bool((flushes == _column(tokens[: calls * plan.fills])).all())
    again = look.at(timed_process.buffers.kept, len(plan.kept)) if plan.kept else []
    return BatchResult(plan, wall_us, calls, answer.us, answer.strays, found, again, flushed)


class _Answer(NamedTuple):
    us: tuple[float, ...]
    strays: int


class _PendingRequest(threading.Thread):
    """The request of a volley, whose answer comes after its end."""

    def __init__(self, timed_process: TimedProcess, request: dict[str, object]) -> None:
        super().__init__(daemon=True, name="volley")
        self._timed_process = timed_process
        self._request = request
        self._found: dict[str, JSON] | SideFailed | None = None

    def run(self) -> None:
        """Ask, and keep the answer."""
        self._found = self._timed_process.line.ask(self._request, self._timed_process.limit_s)

    def failure(self, side: str) -> SideFailed:
        """Why there was no end; the request is over or runs into its limit."""
        self.join()
        if isinstance(self._found, SideFailed):
            return self._found.model_copy(update={"side": side})
        return SideFailed(side=side, reason="malformed", log="a volley without its words")

    def answer(self, side: str, calls: int) -> _Answer | SideFailed:
        """What the process says of its own times."""
        self.join()
        if isinstance(self._found, dict):
            us, strays = self._found.get("us"), self._found.get("strays")
            if isinstance(us, list) and len(us) == calls and isinstance(strays, int):
                times = tuple(item for item in us if is_time(item))
                if len(times) == calls:
                    return _Answer(subtract_event_time(times, self._timed_process.event_us), strays)
            text = f"volley: {str(self._found)[:300]}"
            return SideFailed(side=side, reason="malformed", log=text)
        return self.failure(side)


def _reached(
    control: NDArray[np.int64],
    word: int,
    asked: _PendingRequest,
    timed_process: TimedProcess,
    stop_at: int | None = None,
) -> bool:
    """Watch the process's words; past `stop_at` calls tell it to stop. False: it will not come."""
    nap = 0.0 if timed_process.device == "cuda" else 5e-5
    end = time.monotonic() + timed_process.limit_s + 1.0
    while not control[word]:
        if stop_at is not None and control[PROGRESS] >= stop_at:
            control[STOP] = 1
        if not asked.is_alive() or time.monotonic() > end:
            return bool(control[word])
        time.sleep(nap)
    return True


def _order_words(plan: BatchPlan) -> list[int]:
    return [row | (KEEP if index in plan.kept else 0) for index, row in enumerate(plan.order)]


def _poison(timed_process: TimedProcess) -> None:
    """No earlier answer lies where the next ones go."""
    import torch

    for data in (timed_process.buffers.slots, timed_process.buffers.kept):
        data.view(torch.int64).fill_(-1)
    if timed_process.device == "cuda":
        torch.cuda.synchronize()


def _flush_words(timed_process: TimedProcess, regions: int) -> torch.Tensor:
    """[regions, words] of what the flushes wrote, at random places, on the CPU."""
    import torch

    filled = flush_regions(timed_process.buffers.flush, timed_process.layout)[:regions]
    seed = random.SystemRandom().getrandbits(40)
    chosen = torch.Generator().manual_seed(seed)
    places = torch.randint(0, filled.shape[1], (FLUSH_SAMPLES,), generator=chosen)
    return filled.index_select(1, places.to(filled.device)).cpu()


def _column(tokens: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.tensor(tokens, dtype=torch.int32).view(-1, 1)
