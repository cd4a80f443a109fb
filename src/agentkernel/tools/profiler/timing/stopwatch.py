"""Timing of one callable on the device of this process.

Runs in the worker of the candidate and in the baseline process, so that every side is timed by
the same code.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.runtime.machine import release_cached_memory

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "cuda"]
Call = Callable[[], object]
LONG_CALL_US = 5_000.0
EVENT_CALLS = 101
PROFILED_CALLS = 16
ENQUEUE_RUNS, ENQUEUED_CALLS = 3, 8
"""Few enough that the queue of launches, which holds about a thousand, is never full."""
LEAD_CALLS = 2
"""The host runs ahead of the device only after the first calls of a block: they do not count."""


class Sustained(NamedTuple):
    """A run without pauses: how many calls, and the wall seconds until the device was done."""

    calls: int
    seconds: float


class KernelLaunch(NamedTuple):
    """One kernel (or device copy) of a profiled call: its name and device time in microseconds."""

    name: str
    device_us: float


class Stopwatch:
    """`perf_counter` around each call: what the CPU has."""

    def __init__(self, calls: int) -> None:
        self._begin = [0.0] * calls
        self._end = [0.0] * calls

    def begin(self, index: int) -> None:
        """Call number `index` begins."""
        self._begin[index] = time.perf_counter()

    def end(self, index: int) -> None:
        """It has ended, or is enqueued."""
        self._end[index] = time.perf_counter()

    def us(self, calls: int) -> tuple[float, ...]:
        """Microseconds of the first `calls`, once the device is done."""
        pairs = zip(self._begin[:calls], self._end[:calls], strict=True)
        return tuple((end - begin) * 1e6 for begin, end in pairs)


class EventStopwatch(Stopwatch):
    """CUDA events on the default stream around each call."""

    def __init__(self, calls: int, pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]]) -> None:
        super().__init__(calls)
        self._pairs = pairs

    def begin(self, index: int) -> None:
        """Call number `index` begins."""
        self._pairs[index][0].record()

    def end(self, index: int) -> None:
        """It has ended, or is enqueued."""
        self._pairs[index][1].record()

    def us(self, calls: int) -> tuple[float, ...]:
        """Microseconds of the first `calls`, once the device is done."""
        return tuple(begin.elapsed_time(end) * 1e3 for begin, end in self._pairs[:calls])


class CallTimer:
    """Times calls on `device`, each after writing `flush_bytes` (more than the L2 holds).

    Device time between two CUDA events on the default stream around each call. The flush lies
    outside the events and lets the host run ahead, as in `triton.testing.do_bench`: launch overhead
    shows where it is longer than the device needs. On the CPU (the tests) `perf_counter` stands in.
    """

    def __init__(self, device: Device, flush_bytes: int) -> None:
        import torch

        self.device = device
        self._flush = torch.empty(max(flush_bytes // 4, 1), dtype=torch.int32, device=device)
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def give_back(self) -> None:
        """Let others have the device memory that this process holds without using it."""
        release_cached_memory(self.device)

    def flush_us(self) -> float:
        """Device time of one flush, so that the caller can plan blocks."""
        return min(self._timed(self._flush.zero_, 5, flushes=0))

    def event_us(self) -> float:
        """What the two events around a call say where there is no call; 0 on the CPU."""
        if self.device == "cpu":
            return 0.0
        return median(self.block(lambda: None, EVENT_CALLS))

    def block(
        self, call: Call, calls: int, last_us: float = 0.0, flushes: int = 1
    ) -> tuple[float, ...]:
        """Microseconds of each of `calls` cold calls, after one to three untimed ones. During more
        `flushes` before a call the host gets further ahead of the device."""
        import torch

        with torch.no_grad(), garbage_collection_paused():
            for _ in range(1 if last_us > LONG_CALL_US else 3):
                call()
            lead = 0 if self.device == "cpu" or last_us > LONG_CALL_US else LEAD_CALLS
            return tuple(self._timed(call, calls + lead, flushes=flushes)[lead:])

    def stopwatch(self, calls: int) -> Stopwatch:
        """Begin and end of up to `calls` calls by this process's own clock."""
        if self.device == "cpu":
            return Stopwatch(calls)
        return EventStopwatch(calls, self._event_pairs(calls))

    def sustain(self, call: Call, seconds: float, call_us: float) -> Sustained:
        """Calls back to back, without flushes, for about `seconds`; at most three times that."""
        import torch

        count = max(1, math.ceil(seconds * 1e6 / max(call_us, 1.0)))
        done = 0
        with torch.no_grad(), garbage_collection_paused():
            call()
            self.wait()
            begin = time.perf_counter()
            while done < count and time.perf_counter() - begin < 3 * seconds:
                for _ in range(min(16, count - done)):
                    call()
                    done += 1
            self.wait()
        return Sustained(done, time.perf_counter() - begin)

    def enqueue_us(self, call: Call) -> float:
        """Microseconds that the processor needs to launch one call, the least of a few runs of
        calls that nobody waits for; 0 on the CPU, where it does the work as well."""
        if self.device == "cpu":
            return 0.0
        import torch

        runs = []
        with torch.no_grad(), garbage_collection_paused():
            for _ in range(ENQUEUE_RUNS):
                begin = time.perf_counter()
                for _ in range(ENQUEUED_CALLS):
                    call()
                runs.append(time.perf_counter() - begin)
                self.wait()
        return min(runs) / ENQUEUED_CALLS * 1e6

    def peak_bytes(self, call: Call) -> int:
        """Device memory that one call holds at most beyond what was there before (0 on the CPU)."""
        if self.device == "cpu":
            return 0
        import torch

        with torch.no_grad():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            torch.cuda.synchronize()
            return max(0, torch.cuda.max_memory_allocated() - before)

    def do_bench_us(self, call: Call) -> float | None:
        """The median of `triton.testing.do_bench`, for comparison; None on the CPU."""
        if self.device == "cpu":
            return None
        import torch
        from triton.testing import do_bench

        with torch.no_grad():
            return float(do_bench(call, warmup=10, rep=30, return_mode="median")) * 1e3

    def launches(self, call: Call) -> tuple[KernelLaunch, ...]:
        """What one cold call puts on the device (torch.profiler): the median time of each of its
        kernels over several calls. Call it last: CUPTI slows launches."""
        if self.device == "cpu":
            return ()
        import torch
        from torch._C._autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        def recorded(calls: int) -> list[KernelLaunch]:
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
                for _ in range(calls):
                    self._flush.zero_()
                    call()
                torch.cuda.synchronize()
            events = [x for x in record.events() or () if x.device_type == DeviceType.CUDA]
            events.sort(key=lambda event: event.time_range.start)
            return [KernelLaunch(x.name, float(x.time_range.elapsed_us())) for x in events]

        with torch.no_grad():
            call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            torch.cuda.synchronize()
            long = (time.perf_counter() - begin) * 1e6 > LONG_CALL_US
            found = [] if long else median_launches(recorded(PROFILED_CALLS), PROFILED_CALLS)
            return tuple(found or recorded(1)[1:])

    def copy_gb_per_s(self, size_bytes: int) -> float:
        """Device-to-device copy of `size_bytes`, read and write counted: the copy ceiling."""
        import torch

        source = torch.empty(size_bytes // 4, dtype=torch.int32, device=self.device).zero_()
        target = torch.empty_like(source)
        samples = sorted(self.block(lambda: target.copy_(source), 21))
        return 2.0 * source.numel() * 4 / (samples[len(samples) // 2] * 1e3)

    def _timed(self, call: Call, calls: int, *, flushes: int) -> list[float]:
        if self.device == "cpu":
            return [self._timed_on_cpu(call, flush=flushes > 0) for _ in range(calls)]
        import torch

        pairs = self._event_pairs(calls)
        torch.cuda.synchronize()
        for begin, end in pairs:
            for _ in range(flushes):
                self._flush.zero_()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 for begin, end in pairs]

    def _timed_on_cpu(self, call: Call, *, flush: bool) -> float:
        if flush:
            self._flush.zero_()
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e6

    def _event_pairs(self, count: int) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
        """Events that exist already: torch makes one at its first record, which takes host time."""

        while len(self._events) < count:
            begin, end = _new_event(), _new_event()
            self._events.append((begin, end))
        return self._events[:count]


def _new_event() -> torch.cuda.Event:
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def flush_bytes(l2_mb: float) -> int:
    """Size of the buffer that evicts the L2: twice the cache, at least 512 MB.

    That takes about 160 us on an H200, while the processor runs ahead with the launches of the
    call. With the 256 MB of do_bench a busy processor was seen to come late: compiled modules of a
    few kernels then had two times, and ratios intervals of 30%.
    """
    return max(512 * 2**20, int(2 * l2_mb * 2**20))


def median_launches(found: Sequence[KernelLaunch], calls: int) -> tuple[KernelLaunch, ...]:
    """`found`: the kernels of so many calls in order, each begun by the flush; of the others the
    median time at each place. Nothing where the calls are not alike."""
    each = len(found) // calls
    columns = [found[place::each] for place in range(each)]
    alike = len(found) == each * calls and all(
        len({item.name for item in column}) == 1 for column in columns
    )
    if not alike:
        return ()
    return tuple(
        KernelLaunch(column[0].name, median(item.device_us for item in column))
        for column in columns[1:]
    )


def subtract_event_time(samples_us: Sequence[float], event_us: float) -> tuple[float, ...]:
    """Times between events without what events add; at least half of what they said."""
    return tuple(max(item - event_us, 0.5 * item) for item in samples_us)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage collection inside a timed span."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
