"""Interleaved timing of a candidate, eager and torch.compile on one device.

Also energy per call, peak memory, and the copy bandwidth of the device.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self

from agentkernel.domain.profile import LEFT_OUT, ClockCheck, GpuState, MatmulPrecision
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.pool import first_at_processors
from agentkernel.runtime.stages import stage
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.baselines import (
    BaselineProcess,
    PreparedBaseline,
    autotuned_role,
    main_role,
)
from agentkernel.tools.profiler.nvml import Gauge, GaugeMonitor, busy_state
from agentkernel.tools.profiler.rounds import (
    AUTOTUNED,
    Pace,
    ProfileSettings,
    RemoteSide,
    RequestChannel,
    Rounds,
    Side,
    SideFailed,
    measure_rounds,
)
from agentkernel.tools.profiler.timing.batch import TimedProcess
from agentkernel.tools.profiler.timing.driver import (
    BatchDriver,
    BatchSide,
    CandidateProcess,
    open_batch_driver,
)
from agentkernel.tools.profiler.timing.inputs import ProblemTensors, sums_of
from agentkernel.tools.profiler.timing.process import CANDIDATE
from agentkernel.tools.profiler.timing.stopwatch import Device, KernelLaunch
from agentkernel.tools.sandbox.session import open_worker, settle_idle_workers


class SideMeasures(NamedTuple):
    """What is measured of one side beside its time; None where this device has no such figure."""

    peak_bytes: int
    do_bench_us: float | None = None
    energy_mj: float | None = None


@dataclass(frozen=True)
class ComparisonResult:
    """Everything that one shape set's measurement yields. `compiled` None: torch.compile failed,
    and so with `autotuned`, its max-autotune.

    `launches` is empty where the profiler gives no record; the clocks are None where the device
    shares no memory between processes.
    """

    rounds: Rounds
    candidate: SideMeasures
    eager: SideMeasures
    compiled: SideMeasures | None
    compile_error: str | None
    gpu: GpuState
    launches: tuple[KernelLaunch, ...] = ()
    matmul_precision: MatmulPrecision = "highest"
    autotuned: SideMeasures | None = None
    autotune_error: str | None = None
    autotuned_mode: str | None = None
    clock: ClockCheck | None = None
    eager_clock: ClockCheck | None = None


PERIOD_S = 0.004
TRIES = 3
"""A counter that ticked less than twice is watched again, each time twice as long."""


class EnergyPoint(NamedTuple):
    """The GPU's energy counter at a moment, in millijoules and seconds."""

    time_s: float
    energy_mj: float


def average_power_w(points: Sequence[EnergyPoint]) -> float | None:
    """Mean power from the counter's ticks; None where it ticked less than twice.

    The counter moves in steps of 20 to 100 ms, depending on the GPU. Only the span between the
    first and the last step counts, so that the step's length does not matter.
    """
    ticks = [now for before, now in itertools.pairwise(points) if now.energy_mj > before.energy_mj]
    if len(ticks) < 2:
        return None
    first, last = ticks[0], ticks[-1]
    return (last.energy_mj - first.energy_mj) / 1e3 / (last.time_s - first.time_s)


def energy_per_call_mj(side: RemoteSide, gauge: Gauge, seconds: float) -> float | SideFailed | None:
    """Millijoules a call from calls back to back (warm L2) for `seconds`, longer where a busy host
    or a slow counter showed less than two ticks; None where the GPU has no energy counter."""
    if gauge.energy_mj() is None:
        return None
    for attempt in range(TRIES):
        points: list[EnergyPoint] = []
        with _polled(gauge, points):
            done = side.sustain(seconds * 2**attempt)
        if isinstance(done, SideFailed):
            return done
        power = average_power_w(points)
        if power is not None:
            return power * done.seconds / done.calls * 1e3
    return None


@contextmanager
def _polled(gauge: Gauge, points: list[EnergyPoint]) -> Iterator[None]:
    """Appends the counter's readings to `points` while the block runs."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(PERIOD_S):
            value = gauge.energy_mj()
            if value is not None:
                points.append(EnergyPoint(time.monotonic(), value))

    thread = threading.Thread(target=poll, daemon=True, name="nvml-energy")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


COPY_BYTES = 1 << 30
QUICK = Pace(seconds=0.15, min_rounds=3, max_rounds=5, half_width=0.05, block_ms=6.0, max_calls=20)
"""About 0.1 s on the GPU for two sides."""
DIED = SideFailed(side="twin", reason="died", log="")


class Comparison:
    """Holds the weights and the inputs of a problem, and the baselines' processes, while a run
    lasts: one with eager and torch.compile, one with its max-autotune.

    The parent makes weights and inputs once, on the device; all processes map the same memory.
    The inputs of one shape set are in memory at a time. `device` "cpu" serves the tests. Where
    several runs share the GPU, what is timed happens while the others wait (`tools.gate`); the gate
    is never held while a process is awaited that goes through it itself.
    """

    def __init__(
        self,
        loaded: LoadedProblem,
        settings: ProfileSettings,
        gauge: Gauge,
        *,
        flush_bytes: int,
        device: Device = "cuda",
    ) -> None:
        self._settings = settings
        self._gauge = gauge
        self._device: Device = device
        self._problem = ProblemTensors(
            loaded,
            seed=settings.seed,
            flush_bytes=flush_bytes,
            device=device,
            keep_bytes=settings.keep_bytes,
            precision=settings.precision,
        )
        self._main_baseline = PreparedBaseline(self._problem, main_role(settings))
        self._tuned = PreparedBaseline(self._problem, autotuned_role(settings))
        self._baselines: dict[tuple[int, str], SideMeasures] = {}
        self._copy_gb_per_s: float | None = None
        self._ground: BatchDriver | None = None
        self._memory_of: BaselineProcess | None = None
        self._own_writes: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for baseline_process in self._baseline_processes():
            baseline_process.end()
        self._release_memory()
        self._problem.release()

    def begin(self) -> None:
        """Let the baseline processes start, warm up and compile the first shape set while others
        work.

        Only where the requests are small: device memory by handle, a module made from its source.
        """
        if self._main_baseline.process is not None or not self._problem.small:
            return
        if self._make_inputs(0) is None:
            for baseline_process in self._baseline_processes():
                baseline_process.post(0)

    def ready(self) -> bool:
        """True where no baseline compiles any more of what was begun ahead."""
        return all(baseline_process.ready() for baseline_process in self._baseline_processes())

    @property
    def matmul_precision(self) -> MatmulPrecision:
        """What the baselines may round in their products."""
        return self._problem.matmul_precision

    def start(self) -> SideFailed | None:
        """Start the baseline process with the weights, unless it runs."""
        return self._main_baseline.start()

    def copy_gb_per_s(self) -> float | SideFailed:
        """The copy ceiling, measured once (read and write counted)."""
        if self._copy_gb_per_s is None:
            begun = self._problem.shape_set if self._main_baseline.fresh else None
            failure = self.start() if begun is None else self._hold(begun)
            if failure is not None or self._main_baseline.process is None:
                return failure or DIED
            if self._copy_gb_per_s is None:
                with self._timing():
                    return self._time_copy(self._main_baseline.process)
        return self._copy_gb_per_s

    def _time_copy(self, process: BaselineProcess) -> float | SideFailed:
        request = {"do": "copy", "bytes": COPY_BYTES if self._device == "cuda" else 1 << 22}
        answer = process.ask(request, self._settings.call_limit_s)
        if isinstance(answer, SideFailed):
            return answer
        self._copy_gb_per_s = float(str(answer["gb_per_s"]))
        return self._copy_gb_per_s

    @stage("load candidate")
    def candidate(self, source: str) -> CandidateProcess | SideFailed:
        """A worker with `source` loaded; the caller closes it."""
        worker = open_worker(
            device=self._device,
            interpret=self._device == "cpu",
            allow_unsandboxed=self._settings.allow_unsandboxed,
        )
        process = CandidateProcess(worker, self._settings.start_limit_s)
        with ExitStack() as cleanup:
            cleanup.push(process)
            with gpu_lock.shared():
                failure = process.load(source, self._problem)
            if failure is not None:
                return failure
            cleanup.pop_all()
        return process

    def measure(
        self, process: CandidateProcess, shape_set: int, *, record: bool = True
    ) -> ComparisonResult | SideFailed:
        """The candidate against the baselines on one shape set, and all that is not a time.

        `record` notes the launches, after which the process's launches are slower: the last time.
        """
        failure = process.forget() or self._hold(shape_set)
        if failure is not None:
            return failure
        with gpu_lock.shared():
            failure = process.prepare(self._problem.inputs, large=self._problem.large(shape_set))
        if failure is not None:
            return failure
        settle_idle_workers()
        with self._timing(process):
            timed_process = self._calibrate(shape_set) or self._timed_process(process, shape_set)
            if isinstance(timed_process, SideFailed):
                return timed_process
            found = self._measured(process, shape_set, timed_process)
            if isinstance(found, SideFailed) and self._without_tuned(found, shape_set):
                found = self._measured(process, shape_set, timed_process)
        if isinstance(found, SideFailed):
            if found.reason == "inputs_changed":
                self.make_room()  # large inputs exist once: they are made for the next candidate
            return found
        return replace(found, launches=self._launches(process)) if record else found

    def _launches(self, process: CandidateProcess) -> tuple[KernelLaunch, ...]:
        """What one call puts on the device. Beside others: shares of a call need no quiet GPU, and
        the profiler takes longer to start than the call."""
        if not self._settings.extras:
            return ()
        with stage("profiled call"), gpu_lock.shared():
            found = self._remote(CANDIDATE, process, 0.0).launches()
        return () if isinstance(found, SideFailed) else found

    def measure_baselines(self, shape_set: int) -> Rounds | SideFailed:
        """Eager (first), torch.compile and its max-autotune alone, interleaved."""
        failure = self._hold(shape_set)
        if failure is not None:
            return failure
        with self._timing():
            ground = self._calibrate(shape_set) or self._laid(shape_set)
            if isinstance(ground, SideFailed):
                return ground
            found = self._rounds(self._sides(shape_set, ground))
            if isinstance(found, SideFailed) and self._without_tuned(found, shape_set):
                found = self._rounds(self._sides(shape_set, ground))
        return found

    def measure_quickly(self) -> Rounds | SideFailed:
        """A few short rounds of eager and torch.compile on the first shape set. Does not wait for
        max-autotune, which compiles on."""
        failure = self._make_inputs(0)
        large = self._problem.large(0)
        if failure is None and self.autotune_error(0) is None and not large:
            self._tuned.post(0)
        with stage("wait for baselines"):
            failure = failure or self._main_baseline.hold(0)
        if failure is not None:
            return failure
        sides = [item for item in self._remotes(0) if item.name != AUTOTUNED]
        with self._timing():
            return self._main_baseline.calibrate(0) or self._rounds(sides, QUICK)

    def compile_error(self, shape_set: int) -> str | None:
        """Why torch.compile has no time for this shape set; None where it has, or is untried."""
        return self._main_baseline.errors.get(shape_set)

    def autotune_error(self, shape_set: int) -> str | None:
        """The same of its max-autotune."""
        if not self._settings.max_autotune:
            return LEFT_OUT
        return self._tuned.errors.get(shape_set)

    def autotuned_mode(self, shape_set: int) -> str | None:
        """Which mode of max-autotune was the faster one, once that is known."""
        return self._tuned.modes.get(shape_set)

    def _measured(
        self,
        process: CandidateProcess,
        shape_set: int,
        timed_process: TimedProcess | None,
    ) -> ComparisonResult | SideFailed:
        """Rounds and extras, with the GPU alone. `timed_process`: the candidate's, where batches
        time."""
        own_side = self._remote(CANDIDATE, process, self._main_baseline.event_us)
        ground = self._ground if timed_process is not None else None
        own = ground.candidate(CANDIDATE, timed_process) if ground and timed_process else None
        sides = self._sides(shape_set, ground)
        weights = process.weight_sums()
        rounds = self._rounds([own or own_side, *sides])
        if isinstance(rounds, SideFailed):
            return rounds
        changed = _changed(weights, process.weight_sums()) - self._own_writes
        if changed:
            text = f"written to: {', '.join(sorted(changed))}"
            return SideFailed(side=CANDIDATE, reason="weights_changed", log=text)
        gpu = busy_state(self._gauge.state(), rounds.readings())
        clock = own.clock() if own is not None else None
        if isinstance(clock, SideFailed):
            return clock
        extras = self._extras(own_side)
        if isinstance(extras, SideFailed):
            return extras
        baselines = {
            side.name: self._baseline(side, shape_set) for side in self._remotes(shape_set)
        }
        eager = sides[0]
        return ComparisonResult(
            rounds=rounds,
            candidate=extras,
            eager=baselines["eager"],
            compiled=baselines.get("compile"),
            compile_error=self.compile_error(shape_set),
            autotuned=baselines.get(AUTOTUNED),
            autotune_error=self.autotune_error(shape_set),
            autotuned_mode=self.autotuned_mode(shape_set),
            gpu=gpu,
            matmul_precision=self.matmul_precision,
            clock=clock,
            eager_clock=own.clock_of(eager) if own and isinstance(eager, BatchSide) else None,
        )

    def _rounds(self, sides: Sequence[Side], pace: Pace | None = None) -> Rounds | SideFailed:
        pace = (pace or self._settings.pace).evolve(flush_us=self._main_baseline.flush_us)
        with GaugeMonitor(self._gauge) as watch:
            return measure_rounds(sides, watch, pace, self._settings.seed)

    def _without_tuned(self, failure: SideFailed, shape_set: int) -> bool:
        """True where max-autotune alone was lost: it has failed, and the others go on."""
        if failure.side != AUTOTUNED or self._tuned.process is None:
            return False
        self._tuned.give_up(shape_set, failure)
        return True

    def _baseline_processes(self) -> tuple[PreparedBaseline, ...]:
        return (
            (self._main_baseline, self._tuned)
            if self._settings.max_autotune
            else (self._main_baseline,)
        )

    @contextmanager
    def _timing(self, process: CandidateProcess | None = None) -> Iterator[None]:
        """The GPU alone, and all sides alike before others at the processors; one that is still
        compiling is none."""

        def timed() -> list[int]:
            baselines = [item.process for item in self._baseline_processes() if item.ready()]
            return [pid for side in (*baselines, process) if side for pid in side.pids]

        with gpu_lock.exclusive(), first_at_processors(timed):
            yield

    def _remote(self, name: str, line: RequestChannel, event_us: float) -> RemoteSide:
        return RemoteSide(name, line, self._settings.call_limit_s, event_us)

    def _remotes(self, shape_set: int) -> list[RemoteSide]:
        """Eager, and the compiled modules that there are."""
        held = [("eager", self._main_baseline)]
        if self.compile_error(shape_set) is None:
            held.append(("compile", self._main_baseline))
        if self.autotune_error(shape_set) is None:
            held.append((AUTOTUNED, self._tuned))
        return [
            self._remote(name, baseline_process.process, baseline_process.event_us)
            for name, baseline_process in held
            if baseline_process.process is not None
        ]

    def _sides(self, shape_set: int, ground: BatchDriver | None) -> list[Side]:
        """The same, as batches time them where there is ground for it."""
        remotes = self._remotes(shape_set)
        return [ground.side(item.name) if ground else item for item in remotes]

    def _timed_process(
        self, process: CandidateProcess, shape_set: int
    ) -> TimedProcess | SideFailed | None:
        """The candidate's place on the ground; None without shared memory."""
        ground = self._laid(shape_set)
        if ground is None or isinstance(ground, SideFailed):
            return ground
        return process.ground(ground)

    def _laid(self, shape_set: int) -> BatchDriver | SideFailed | None:
        """The ground of the shape set in memory, laid at its first use, with all baseline processes
        on it."""
        process = self._main_baseline.process
        if process is None:
            return DIED
        if self._memory_of is not process:
            failure = self._lay(process)
            if failure is not None:
                return failure
        tuned, ground = self._tuned.process, self._ground
        if ground is not None and tuned is not None and self.autotune_error(shape_set) is None:
            known = ground.others.get(AUTOTUNED)
            if known is None or known.line is not tuned:
                failure = ground.join(AUTOTUNED, tuned, self._tuned.event_us)
                if failure is not None:
                    self._tuned.give_up(shape_set, failure)
        return ground

    def _lay(self, process: BaselineProcess) -> SideFailed | None:
        self._release_memory()
        before = sums_of(self._problem.parameters())
        found = open_batch_driver(
            process,
            self._problem,
            self._main_baseline.outputs,
            calls=self._settings.pace.max_calls,
            limit_s=self._settings.call_limit_s,
            event_us=self._main_baseline.event_us,
        )
        if isinstance(found, SideFailed) and not process.alive:
            return found
        self._own_writes = frozenset(_changed(before, sums_of(self._problem.parameters())))
        self._ground = found if isinstance(found, BatchDriver) else None
        self._memory_of = process
        return None

    def _release_memory(self) -> None:
        """Let go of the shared memory; the processes have."""
        if self._ground is not None:
            self._ground.close()
        self._ground, self._memory_of = None, None

    @stage("wait for baselines")
    def _hold(self, shape_set: int) -> SideFailed | None:
        """Bring the inputs of `shape_set` into memory and into the baseline processes, compiled
        there. What goes wrong with max-autotune is noted and costs nothing else."""
        failure = self._make_inputs(shape_set)
        tune = self.autotune_error(shape_set) is None
        if failure is None and tune and not self._problem.large(shape_set):
            self._tuned.post(shape_set)  # meanwhile; what is large is compiled one after the other
        failure = failure or self._main_baseline.hold(shape_set)
        failed = self._tuned.hold(shape_set) if failure is None and tune else None
        if failed is not None:
            self._tuned.give_up(shape_set, failed)
        return failure

    def _calibrate(self, shape_set: int) -> SideFailed | None:
        """What every time of the baseline processes rests on, and the copy ceiling; all that is not
        known yet. In the same turn as what is timed by it: each turn alone on the GPU waits until
        all others have left."""
        failure = self._main_baseline.calibrate(shape_set)
        failed = self._tuned.calibrate(shape_set)
        if failed is not None:
            self._tuned.give_up(shape_set, failed)
        process = self._main_baseline.process
        if failure is None and self._copy_gb_per_s is None and process is not None:
            self._time_copy(process)
        return failure

    def _make_inputs(self, shape_set: int) -> SideFailed | None:
        """Bring the inputs of `shape_set` into memory, and no others."""
        if self._problem.shape_set == shape_set:
            return None
        self._forget_inputs()
        return self._problem.make_inputs(shape_set)

    def make_room(self) -> None:
        """Let go of large inputs, for one who needs the GPU's memory: they are made again when they
        are timed. The processes and what they compiled stay."""
        held = self._problem.shape_set
        if held is not None and self._problem.large(held):
            self._forget_inputs()
            self._problem.drop_inputs()

    def _forget_inputs(self) -> None:
        for baseline_process in self._baseline_processes():
            baseline_process.forget()
        self._release_memory()

    def _extras(self, side: RemoteSide) -> SideMeasures | SideFailed:
        peak = side.peak_bytes()
        if isinstance(peak, SideFailed):
            return peak
        if not self._settings.extras:
            return SideMeasures(peak)
        bench = side.do_bench_us() if self._settings.records else None
        if isinstance(bench, SideFailed):
            return bench
        if side.name == AUTOTUNED:
            return SideMeasures(peak, bench)
        energy = energy_per_call_mj(side, self._gauge, self._settings.energy_s)
        return energy if isinstance(energy, SideFailed) else SideMeasures(peak, bench, energy)

    def _baseline(self, side: RemoteSide, shape_set: int) -> SideMeasures:
        """A baseline's extras, measured with the first candidate and kept for the others."""
        key = (shape_set, side.name)
        if key not in self._baselines:
            found = self._extras(side)
            self._baselines[key] = SideMeasures(0) if isinstance(found, SideFailed) else found
        return self._baselines[key]


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    return {name for name, value in before.items() if after.get(name) != value}
