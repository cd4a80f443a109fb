"""The sandboxed process in which schedules are loaded and timed, and the check that they agree."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from agentkernel.runtime.stages import overlapped, stage
from agentkernel.tools.compile.candidate import Binary
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.timing.inputs import call_sizes
from agentkernel.tools.profiler.timing.stopwatch import Device
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker, open_worker

if TYPE_CHECKING:
    import torch

MAX_DEVIATION = 0.05
"""Relative distance of a sketch from the majority's: far above any rounding, far below a bug."""
MAJORITY = 3
"""Fewer schedules than this have no majority to differ from."""


class Sketch(NamedTuple):
    """A few hundred elements spread over a call's outputs, with how many are NaN altogether."""

    nan_count: int
    samples: tuple[float, ...]


def disagreements(sketches: Mapping[int, Sketch]) -> dict[int, str]:
    """Index -> why its output is broken: other sizes, other NaNs, or far from the median output."""
    if len(sketches) < MAJORITY:
        return {}
    reasons: dict[int, str] = {}
    size = _most_common([len(item.samples) for item in sketches.values()])
    nans = _most_common([item.nan_count for item in sketches.values()])
    for index, item in sketches.items():
        if len(item.samples) != size:
            reasons[index] = f"{len(item.samples)} sampled elements where most have {size}"
        elif item.nan_count != nans:
            reasons[index] = f"{item.nan_count} NaN in its output where most have {nans}"
    alike = {index: item for index, item in sketches.items() if index not in reasons}
    return reasons | _far(alike)


def _far(sketches: Mapping[int, Sketch]) -> dict[int, str]:
    if len(sketches) < MAJORITY:
        return {}
    rows = np.asarray([item.samples for item in sketches.values()], float)
    middle = np.median(rows, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = float(np.linalg.norm(middle)) or float(np.finfo(float).tiny)
        distance = np.linalg.norm(rows - middle, axis=1) / scale
    return {
        index: f"its output is {value:.2g} (relative) away from that of most schedules"
        for index, value in zip(sketches, distance, strict=True)
        if not value <= MAX_DEVIATION
    }


def _most_common(values: list[int]) -> int:
    return Counter(values).most_common(1)[0][0]


OPS = "agentkernel.tools.search.worker_ops"
COMPILED = "compiled_s"
"""As the worker names it."""
WARM_LIMIT_S = 90.0
BLOCK_LIMIT_S = 30.0
STICKY = (
    "CUDA error",
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "out of memory",
)
"""After these the CUDA context may be lost, or others of the group are to blame: each is loaded
again by itself, in a new process."""
LOG_CHARS = 300
CALL_COPIES = 3
"""What one call of a schedule may hold, as inputs and outputs so many times: its result, the one
before, and what it makes on the way."""


@dataclass(frozen=True)
class FailedSchedule:
    """A schedule that raised."""

    reason: str


@dataclass(frozen=True)
class WarmUpResult:
    """The outcome of loading a group: sketches of the outputs, and who raised."""

    sketches: dict[int, Sketch] = field(default_factory=dict)
    broken: dict[int, FailedSchedule] = field(default_factory=dict)


class Loaded(NamedTuple):
    """A problem's weights and inputs."""

    problem: LoadedProblem
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[object, ...]


class Entry(NamedTuple):
    """A schedule by its number, its source, which of the problems it serves, and its kernels as
    far as they are compiled."""

    number: int
    source: str
    problem: int = 0
    binaries: tuple[Binary, ...] = ()


class Block(NamedTuple):
    """Microseconds of single calls: those on the device, and those that the processor needs for the
    launches of one, as far as it was asked."""

    device_us: tuple[float, ...]
    launch_us: float = 0.0

    @property
    def us(self) -> tuple[float, ...]:
        """What the calls take."""
        return tuple(max(item, self.launch_us) for item in self.device_us)


class ScheduleWorker:
    """A worker with the weights and inputs of problems, started again after whatever kills it."""

    def __init__(
        self,
        problems: Sequence[LoadedProblem],
        *,
        device: Device,
        seed: int,
        flush_bytes: int,
        allow_unsandboxed: bool,
    ) -> None:
        self._device: Device = device
        self._flush_bytes = flush_bytes
        self._allow_unsandboxed = allow_unsandboxed
        self._problems = [_loaded(problem, device, seed) for problem in problems]
        self._worker: Worker | None = None
        self._started = False
        self._held: set[int] = set()
        self.last_failure = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._problems = []
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def open(self) -> None:
        """Wait here, where nobody has to wait for it, until there is a worker."""
        if self._worker is None:
            self._worker = open_worker(
                device=self._device,
                interpret=self._device == "cpu",
                allow_unsandboxed=self._allow_unsandboxed,
            )

    def pids(self) -> list[int]:
        """The processes of the worker there is, as this process sees them."""
        return [] if self._worker is None else self._worker.outer_pids()

    def alive(self, index: int) -> bool:
        """True while the worker holds schedule `index`."""
        return index in self._held

    def warm(self, entries: Sequence[Entry]) -> WarmUpResult | None:
        """Load schedules and call each; None where one of them took the process down."""
        reply = self._call("warm", {"variants": [tuple(item) for item in entries]}, WARM_LIMIT_S)
        if reply is None:
            return None
        _tell_compiled(reply.get(COMPILED))
        found = WarmUpResult()
        for index, *_ in entries:
            item = reply.get(str(index))
            sketch = _sketch(item)
            if sketch is None:
                found.broken[index] = FailedSchedule(_error(item))
            else:
                found.sketches[index] = sketch
        if any(word in item.reason for item in found.broken.values() for word in STICKY):
            self.last_failure = next(iter(found.broken.values())).reason
            self._end()
            return None
        self._held |= set(found.sketches)
        return found

    def time_block(
        self, index: int, calls: int, *, last_us: float, limit_us: float, whole: bool = True
    ) -> Block | None:
        """Calls of a schedule, and the launches of a `whole` drop-in; None where the schedule
        failed (and the worker with it)."""
        payload: dict[str, JSON] = {"index": index, "calls": calls, "whole": whole}
        payload |= {"last_us": last_us, "limit_us": limit_us}
        reply = self._call("time_block", payload, BLOCK_LIMIT_S)
        found = None if reply is None else reply.get("us")
        if reply is not None and isinstance(found, list):
            launch_us = reply.get("launch_us")
            times = [item for item in found if isinstance(item, float) and 0 < item < math.inf]
            told = launch_us if isinstance(launch_us, float) else math.inf
            if times and len(times) == len(found) and 0 <= told < math.inf:
                return Block(tuple(times), told)
            self.last_failure = "it answered with times that are none"
        return None

    def _call(
        self, op: str, payload: Mapping[str, object], limit_s: float
    ) -> dict[str, JSON] | None:
        """One op; None where it failed. The worker ends then; the next call starts another."""
        worker = self._running()
        reply = worker.call(f"{OPS}:{op}", payload, limit_s)
        if isinstance(reply, WorkerFailed):
            self.last_failure = f"{reply.reason}: {reply.log.strip()[-LOG_CHARS:]}"
            self._end()
            return None
        return reply

    def _running(self) -> Worker:
        self.open()
        worker = self._worker
        assert worker is not None
        if not self._started:
            self._started = True
            with stage("start the search's worker"):
                worker.call(f"{OPS}:start", self._shared(worker), WARM_LIMIT_S)
        return worker

    def _shared(self, worker: Worker) -> dict[str, object]:
        return {
            "problems": [_shown(item, worker) for item in self._problems],
            "flush_bytes": self._flush_bytes,
            "threads": self._threads(),
        }

    def _threads(self) -> int:
        """Schedules that are loaded and called at once: as many as the processors feed, and as the
        device has room for their results."""
        if self._device == "cpu":
            return 1
        # It loads torch, which a search without a GPU does not need.
        from agentkernel.tools.judge.memory_count import device_free

        largest = max(sum(call_sizes(item.problem, 0)) for item in self._problems)
        room = device_free() // (CALL_COPIES * max(1, largest))
        return max(1, min(8, len(os.sched_getaffinity(0)), room))

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker, self._started = None, False
        self._held.clear()


def _loaded(problem: LoadedProblem, device: Device, seed: int) -> Loaded:
    module = problem.build(seed=seed, device=device)
    weights = {
        name: value for name, value in module.state_dict().items() if hasattr(value, "shape")
    }
    return Loaded(problem, weights, problem.make_inputs(0, seed=seed, device=device))


def _shown(item: Loaded, worker: Worker) -> dict[str, object]:
    """What the worker gets of a problem: its tensors shared, the rest as it is."""
    import torch

    return {
        "init_args": item.problem.init_args,
        "init_kwargs": item.problem.init_kwargs,
        "arguments": item.problem.problem.arguments,
        "state": {name: worker.share(value) for name, value in item.weights.items()},
        "inputs": [
            worker.share_resident(value) if isinstance(value, torch.Tensor) else value
            for value in item.inputs
        ],
    }


def _tell_compiled(seconds: JSON) -> None:
    """Kernels whose binaries did not come along, or do not fit, are compiled where all wait."""
    if isinstance(seconds, float) and 0 < seconds < math.inf:
        overlapped("compile again to load", seconds)


def _sketch(item: JSON) -> Sketch | None:
    if not isinstance(item, dict):
        return None
    nans, samples = item.get("nan"), item.get("samples")
    if not isinstance(nans, int) or not isinstance(samples, list):
        return None
    values = [value for value in samples if isinstance(value, float)]
    return Sketch(nans, tuple(values)) if len(values) == len(samples) else None


def _error(item: JSON) -> str:
    text = item.get("error") if isinstance(item, dict) else None
    return str(text) if text else "it answered with something that is no sketch"
