"""The timed side of a batch: calls without pause until the parent says stop.

Runs in the sandboxed worker and in the baseline process, the same code for every side. Requests
and answers are JSON values. Nothing that the process reports is believed by itself: the parent
holds the clock, the inputs, the outputs and the count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from agentkernel.tools.problem.structures import leaves_of
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
from agentkernel.tools.profiler.timing.stopwatch import (
    LONG_CALL_US,
    Call,
    CallTimer,
    garbage_collection_paused,
)
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from agentkernel.domain.problem import DataStructure
    from agentkernel.tools.sandbox.worker import WorkerState


Function = Callable[..., object]
POISON_COPIES = 4
"""Freed blocks full of NaN an output, which the allocator hands out next: for the kept outputs, the
one before and the new one, so that no call waits for new memory."""
POISON_BYTES = 4 << 30
"""More than this is not poisoned: one block an output then."""
STRAY_S = 0.5
"""How long a batch waits for threads that its calls started."""


class BatchTimes(NamedTuple):
    """Microseconds of each call by this process's own clock, and threads still at work."""

    samples_us: tuple[float, ...]
    strays: int


class BatchAborted(Exception):
    """The parent went away, or stopped answering, in the middle of a batch."""


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

    leaves = [found] if isinstance(found, torch.Tensor) else leaves_of(found)
    tensors = [item for item in leaves if isinstance(item, torch.Tensor)]
    for item, slot in zip(tensors, slots, strict=False):
        if item.shape == slot.shape and item.dtype == slot.dtype:
            slot.copy_(item)


def outputs_of(found: object) -> list[list[object]]:
    """Dtype and shape of the tensors in `found`, for a Layout."""
    import torch

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


class TimingServer:
    """Named callables on one `CallTimer`. Each is called with the inputs that it was added with."""

    def __init__(self, bench: CallTimer) -> None:
        self.bench = bench
        self._calls: dict[str, Call] = {}
        self._functions: dict[str, Function] = {}
        self._holding: dict[str, bool] = {}
        self._last_us: dict[str, float] = {}
        self.ground: BatchMemory | None = None
        self.tidy = False
        """Give back the memory of a turn at its end: the tensors are too large for every process to
        keep what another one needs next."""

    def add(
        self, side: str, call: Call, function: Function | None = None, *, holds: bool = True
    ) -> None:
        """Make `call` answer to the name `side`; `function` takes the inputs of a batch.

        `holds` False: its outputs are only good until its next call, so that a batch holds none.
        """
        self._calls[side] = call
        self._holding[side] = holds
        self._last_us.pop(side, None)
        if function is not None:
            self._functions[side] = function

    def drop(self, side: str) -> None:
        """Forget `side` and what its callable holds."""
        self._calls.pop(side, None)
        self._functions.pop(side, None)
        self._last_us.pop(side, None)

    def answer(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Do what `request["do"]` says with `request["side"]`; a KeyError for unknown words."""
        side = str(request["side"])
        found = {
            "block": self._block,
            "volley": self._batch,
            "answers": self._answers,
            "sustain": self._sustain,
            "peak": self._peak,
            "do_bench": self._do_bench,
            "launches": self._launches,
        }[str(request["do"])](side, request)
        self.settle()
        return found

    def settle(self) -> None:
        """The end of a turn."""
        if self.tidy:
            self.bench.give_back()

    def _block(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        calls = _integer(request["calls"])
        samples = self.bench.block(self._calls[side], calls, self._last_us.get(side, 0.0))
        self._last_us[side] = min(samples)
        return {"us": list(samples)}

    def _batch(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        calls = _integer(request["calls"])
        last_us = self._last_us.get(side, 0.0)
        fills = _integer(request["fills"])
        function, holds = self._functions[side], self._holding[side]
        done = run_batch(self._ground, self.bench, function, calls, fills, last_us, holds=holds)
        self._last_us[side] = min(done.samples_us)
        return {"us": list(done.samples_us), "strays": done.strays}

    def _answers(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        """Call on the rows that are asked for and deliver to the first slots, untimed."""
        import torch

        with torch.no_grad():
            for slots, index in zip(self._ground.slots, _integers(request["rows"]), strict=False):
                copy_outputs(self._functions[side](*self._ground.rows[index]), slots)
        self.bench.wait()
        return {}

    def ready_slots(self) -> list[torch.Tensor]:
        """The slots of the first call."""
        return self._ground.slots[0]

    @property
    def _ground(self) -> BatchMemory:
        if self.ground is None:
            raise RuntimeError("a batch was asked for before its ground")
        return self.ground

    def _sustain(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        seconds = float(str(request["seconds"]))
        done = self.bench.sustain(self._calls[side], seconds, self._last_us.get(side, 1e3))
        return {"calls": done.calls, "seconds": done.seconds}

    def _peak(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        return {"bytes": self.bench.peak_bytes(self._calls[side])}

    def _do_bench(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        return {"us": self.bench.do_bench_us(self._calls[side])}

    def _launches(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        found = self.bench.launches(self._calls[side])
        return {"launches": [[item.name, item.device_us] for item in found]}


def _integer(value: object) -> int:
    return int(str(value))


def _integers(value: object) -> list[int]:
    return [_integer(item) for item in cast("Sequence[object]", value)]


CANDIDATE = "candidate"
WARM_UP_CALLS = 3


def load(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build the candidate with the shared weights. Payload: source, class_name, init_args,
    init_kwargs, seed, arguments, state (name -> TensorRef), flush_bytes."""
    state.memory["workbench"] = TimingServer(
        CallTimer(state.device, cast(int, payload["flush_bytes"]))
    )
    module = state.built(
        state.execute(str(payload["source"])),
        str(payload["class_name"]),
        cast("Sequence[object]", payload["init_args"]),
        cast("Mapping[str, object]", payload["init_kwargs"]),
        cast(int, payload["seed"]),
        cast("DataStructure | None", payload.get("arguments")),
    )
    take_weights(module, cast("Mapping[str, TensorRef]", payload["state"]), state)
    state.memory["module"] = module
    return {}


def prepare(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Take the inputs of a shape set (TensorRefs and scalars in order), and call the candidate
    often enough that compilation is over. Payload: inputs, large."""
    import torch

    bench = _workbench(state)
    bench.tidy = bool(payload["large"])
    call = bind(state.memory["module"], cast("Sequence[object]", payload["inputs"]), state)
    with torch.no_grad():
        for _ in range(WARM_UP_CALLS):
            call()
    bench.bench.wait()
    bench.settle()
    bench.add(CANDIDATE, call, cast(Function, state.memory["module"]))
    return {}


def ground(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Take the memory that batches share. Payload: layout, values (the inputs, None for tensors),
    buffers (name -> TensorRef), limit_s."""
    refs = cast("Mapping[str, TensorRef]", payload["buffers"])
    _workbench(state).ground = open_batch_memory(
        cast(Layout, payload["layout"]),
        cast("Sequence[object]", payload["values"]),
        Buffers(**{name: state.open(ref) for name, ref in refs.items()}),
        cast(float, payload["limit_s"]),
    )
    return {}


def forget(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Drop the candidate's call with its inputs, and give cached device memory back."""
    _workbench(state).drop(CANDIDATE)
    _workbench(state).ground = None
    _workbench(state).bench.give_back()
    return {}


def measure(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """A timing request (see Workbench.answer)."""
    return _workbench(state).answer(payload)


def take_weights(module: object, shared: Mapping[str, TensorRef], state: WorkerState) -> None:
    """Let the module's parameters and buffers be the shared tensors themselves: no second copy."""
    weights = {name: state.open(ref) for name, ref in shared.items()}
    cast("nn.Module", module).load_state_dict(weights, strict=True, assign=True)


def bind(module: object, inputs: Sequence[object], state: WorkerState) -> Call:
    """The call `module(*inputs)` with shared tensors opened."""
    values = tuple(state.open(item) if isinstance(item, TensorRef) else item for item in inputs)
    function = cast("nn.Module", module)
    return lambda: function(*values)


def _workbench(state: WorkerState) -> TimingServer:
    return cast(TimingServer, state.memory["workbench"])
