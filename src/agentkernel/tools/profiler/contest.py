"""How do a candidate, eager and torch.compile run against each other on one device?"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from agentkernel.domain.profile import LEFT_OUT, MatmulPrecision
from agentkernel.runtime import gate
from agentkernel.runtime.processes import in_front
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.profiler.contested import Contested, Extras
from agentkernel.tools.profiler.energy import energy_per_call_mj
from agentkernel.tools.profiler.held_twin import HeldTwin, main_duty, tuned_duty
from agentkernel.tools.profiler.nvml import Gauge, Watch, busy_state
from agentkernel.tools.profiler.rounds import Lost, Pace, Rounds, Side, measure_rounds
from agentkernel.tools.profiler.settings import ProfileSettings
from agentkernel.tools.profiler.sides import AUTOTUNED, Line, RemoteSide
from agentkernel.tools.profiler.timing.bench import Device
from agentkernel.tools.profiler.timing.candidate_process import CandidateProcess
from agentkernel.tools.profiler.timing.clock import Stand
from agentkernel.tools.profiler.timing.fresh import sums_of
from agentkernel.tools.profiler.timing.held_problem import HeldProblem
from agentkernel.tools.profiler.timing.volleys import Volleys, VolleySide, lay_ground
from agentkernel.tools.profiler.timing.worker_ops import CANDIDATE
from agentkernel.tools.profiler.twin_process import TwinProcess
from agentkernel.tools.sandbox.session import open_worker, settle_spares

COPY_BYTES = 1 << 30
QUICK = Pace(seconds=0.15, min_rounds=3, max_rounds=5, half_width=0.05, block_ms=6.0, max_calls=20)
"""About 0.1 s on the GPU for two sides."""
DIED = Lost(side="twin", reason="died", log="")


class Contest:
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
        self._flush_bytes = flush_bytes
        self._device: Device = device
        self._problem = HeldProblem(
            loaded,
            seed=settings.seed,
            flush_bytes=flush_bytes,
            device=device,
            keep_bytes=settings.keep_bytes,
            precision=settings.precision,
        )
        self._twin = HeldTwin(self._problem, main_duty(settings))
        self._tuned = HeldTwin(self._problem, tuned_duty(settings))
        self._baselines: dict[tuple[int, str], Extras] = {}
        self._copy_gb_per_s: float | None = None
        self._ground: Volleys | None = None
        self._ground_of: TwinProcess | None = None
        self._own_writes: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for twin in self._twins():
            twin.end()
        self._leave_ground()
        self._problem.release()

    def begin(self) -> None:
        """Let the twins start, warm up and compile the first shape set while others work.

        Only where the requests are small: device memory by handle, a module made from its source.
        """
        if self._twin.process is not None or not self._problem.small:
            return
        if self._make_inputs(0) is None:
            for twin in self._twins():
                twin.post(0)

    @property
    def matmul_precision(self) -> MatmulPrecision:
        """What the baselines may round in their products."""
        return self._problem.matmul_precision

    def start(self) -> Lost | None:
        """Start the twin with the weights, unless it runs."""
        return self._twin.start()

    def copy_gb_per_s(self) -> float | Lost:
        """The copy ceiling, measured once (read and write counted)."""
        if self._copy_gb_per_s is None:
            begun = self._problem.shape_set if self._twin.fresh else None
            lost = self.start() if begun is None else self._hold(begun)
            if lost is not None or self._twin.process is None:
                return lost or DIED
            if self._copy_gb_per_s is None:
                with self._timing():
                    return self._time_copy(self._twin.process)
        return self._copy_gb_per_s

    def _time_copy(self, process: TwinProcess) -> float | Lost:
        request = {"do": "copy", "bytes": COPY_BYTES if self._device == "cuda" else 1 << 22}
        answer = process.ask(request, self._settings.call_limit_s)
        if isinstance(answer, Lost):
            return answer
        self._copy_gb_per_s = float(str(answer["gb_per_s"]))
        return self._copy_gb_per_s

    def candidate(self, source: str) -> CandidateProcess | Lost:
        """A worker with `source` loaded; the caller closes it."""
        worker = open_worker(
            device=self._device,
            interpret=self._device == "cpu",
            allow_unsandboxed=self._settings.allow_unsandboxed,
        )
        process = CandidateProcess(worker, self._settings.start_limit_s)
        with ExitStack() as cleanup:
            cleanup.push(process)
            loaded = self._problem.loaded
            with gate.working():
                lost = process.load(
                    source,
                    loaded.init_args,
                    loaded.init_kwargs,
                    loaded.problem.arguments,
                    self._problem.parameters(),
                    seed=self._settings.seed,
                    flush_bytes=self._flush_bytes,
                )
            if lost is not None:
                return lost
            cleanup.pop_all()
        return process

    def measure(
        self, process: CandidateProcess, shape_set: int, *, record: bool = True
    ) -> Contested | Lost:
        """The candidate against the baselines on one shape set, and all that is not a time.

        `record` notes the launches, after which the process's launches are slower: the last time.
        """
        lost = process.forget() or self._hold(shape_set)
        if lost is not None:
            return lost
        with gate.working():
            lost = process.prepare(self._problem.inputs, large=self._problem.large(shape_set))
            stand = lost or self._stand(process, shape_set)
        if isinstance(stand, Lost):
            return stand
        settle_spares()
        with self._timing(process):
            found = self._measured(process, shape_set, stand, record=record)
            if isinstance(found, Lost) and self._without_tuned(found, shape_set):
                found = self._measured(process, shape_set, stand, record=record)
        if isinstance(found, Lost) and found.reason == "inputs_changed":
            self.make_room()  # large inputs exist once: they are made anew for the next candidate
        return found

    def measure_baselines(self, shape_set: int) -> Rounds | Lost:
        """Eager (first), torch.compile and its max-autotune alone, interleaved."""
        lost = self._hold(shape_set)
        if lost is not None:
            return lost
        with gate.working():
            ground = self._laid(shape_set)
        if isinstance(ground, Lost):
            return ground
        with self._timing():
            found = self._rounds(self._sides(shape_set, ground))
            if isinstance(found, Lost) and self._without_tuned(found, shape_set):
                found = self._rounds(self._sides(shape_set, ground))
        return found

    def measure_quickly(self) -> Rounds | Lost:
        """A few short rounds of eager and torch.compile on the first shape set. Does not wait for
        max-autotune, which compiles on."""
        lost = self._make_inputs(0)
        large = self._problem.large(0)
        if lost is None and self.autotune_error(0) is None and not large:
            self._tuned.post(0)
        lost = lost or self._twin.hold(0)
        if lost is not None:
            return lost
        sides = [item for item in self._remotes(0) if item.name != AUTOTUNED]
        with self._timing():
            return self._twin.calibrate(0) or self._rounds(sides, QUICK)

    def compile_error(self, shape_set: int) -> str | None:
        """Why torch.compile has no time for this shape set; None where it has, or is untried."""
        return self._twin.errors.get(shape_set)

    def autotune_error(self, shape_set: int) -> str | None:
        """The same of its max-autotune."""
        if not self._settings.max_autotune:
            return LEFT_OUT
        return self._tuned.errors.get(shape_set)

    def autotuned_mode(self, shape_set: int) -> str | None:
        """Which mode of max-autotune was the faster one, once that is known."""
        return self._tuned.modes.get(shape_set)

    def _measured(
        self, process: CandidateProcess, shape_set: int, stand: Stand | None, *, record: bool
    ) -> Contested | Lost:
        """Rounds and extras, with the GPU alone. `stand`: the candidate's, where volleys time."""
        own_side = self._remote(CANDIDATE, process, self._twin.event_us)
        ground = self._ground if stand is not None else None
        own = ground.candidate(CANDIDATE, stand) if ground and stand else None
        sides = self._sides(shape_set, ground)
        weights = process.weight_sums()
        rounds = self._rounds([own or own_side, *sides])
        if isinstance(rounds, Lost):
            return rounds
        changed = _changed(weights, process.weight_sums()) - self._own_writes
        if changed:
            text = f"written to: {', '.join(sorted(changed))}"
            return Lost(side=CANDIDATE, reason="weights_changed", log=text)
        gpu = busy_state(self._gauge.state(), rounds.readings())
        clock = own.clock() if own is not None else None
        if isinstance(clock, Lost):
            return clock
        extras = self._extras(own_side)
        if isinstance(extras, Lost):
            return extras
        baselines = {
            side.name: self._baseline(side, shape_set) for side in self._remotes(shape_set)
        }
        record = record and self._settings.extras and self._settings.records
        launches = own_side.launches() if record else ()
        eager = sides[0]
        return Contested(
            rounds=rounds,
            candidate=extras,
            eager=baselines["eager"],
            compiled=baselines.get("compile"),
            compile_error=self.compile_error(shape_set),
            autotuned=baselines.get(AUTOTUNED),
            autotune_error=self.autotune_error(shape_set),
            autotuned_mode=self.autotuned_mode(shape_set),
            launches=() if isinstance(launches, Lost) else launches,
            gpu=gpu,
            matmul_precision=self.matmul_precision,
            clock=clock,
            eager_clock=own.clock_of(eager) if own and isinstance(eager, VolleySide) else None,
        )

    def _rounds(self, sides: Sequence[Side], pace: Pace | None = None) -> Rounds | Lost:
        pace = (pace or self._settings.pace).model_copy(update={"flush_us": self._twin.flush_us})
        with Watch(self._gauge) as watch:
            return measure_rounds(sides, watch, pace, self._settings.seed)

    def _without_tuned(self, lost: Lost, shape_set: int) -> bool:
        """True where max-autotune alone was lost: it has failed, and the others go on."""
        if lost.side != AUTOTUNED or self._tuned.process is None:
            return False
        self._tuned.give_up(shape_set, lost)
        return True

    def _twins(self) -> tuple[HeldTwin, ...]:
        return (self._twin, self._tuned) if self._settings.max_autotune else (self._twin,)

    @contextmanager
    def _timing(self, process: CandidateProcess | None = None) -> Iterator[None]:
        """The GPU alone, and all sides alike before others at the processors."""
        sides = (*(twin.process for twin in self._twins()), process)
        with gate.timing(), ExitStack() as front:
            if gate.shared():
                own = threading.get_native_id()
                front.enter_context(
                    in_front([own, *(pid for side in sides if side for pid in side.pids)])
                )
            yield

    def _remote(self, name: str, line: Line, event_us: float) -> RemoteSide:
        return RemoteSide(name, line, self._settings.call_limit_s, event_us)

    def _remotes(self, shape_set: int) -> list[RemoteSide]:
        """Eager, and the compiled modules that there are."""
        held = [("eager", self._twin)]
        if self.compile_error(shape_set) is None:
            held.append(("compile", self._twin))
        if self.autotune_error(shape_set) is None:
            held.append((AUTOTUNED, self._tuned))
        return [
            self._remote(name, twin.process, twin.event_us)
            for name, twin in held
            if twin.process is not None
        ]

    def _sides(self, shape_set: int, ground: Volleys | None) -> list[Side]:
        """The same, as volleys time them where there is ground for it."""
        remotes = self._remotes(shape_set)
        return [ground.side(item.name) if ground else item for item in remotes]

    def _stand(self, process: CandidateProcess, shape_set: int) -> Stand | Lost | None:
        """The candidate's place on the ground; None without shared memory."""
        ground = self._laid(shape_set)
        if ground is None or isinstance(ground, Lost):
            return ground
        return process.ground(ground)

    def _laid(self, shape_set: int) -> Volleys | Lost | None:
        """The ground of the shape set in memory, laid at its first use, with all twins on it."""
        process = self._twin.process
        if process is None:
            return DIED
        if self._ground_of is not process:
            lost = self._lay(process)
            if lost is not None:
                return lost
        tuned, ground = self._tuned.process, self._ground
        if ground is not None and tuned is not None and self.autotune_error(shape_set) is None:
            known = ground.others.get(AUTOTUNED)
            if known is None or known.line is not tuned:
                lost = ground.join(AUTOTUNED, tuned, self._tuned.event_us)
                if lost is not None:
                    self._tuned.give_up(shape_set, lost)
        return ground

    def _lay(self, process: TwinProcess) -> Lost | None:
        self._leave_ground()
        before = sums_of(self._problem.parameters())
        found = lay_ground(
            process,
            self._problem.inputs,
            self._twin.outputs,
            device=self._device,
            flush_bytes=self._flush_bytes,
            calls=self._settings.pace.max_calls,
            limit_s=self._settings.call_limit_s,
            seed=self._settings.seed,
            event_us=self._twin.event_us,
            pool=self._problem.pool,
        )
        if isinstance(found, Lost) and not process.alive:
            return found
        self._own_writes = frozenset(_changed(before, sums_of(self._problem.parameters())))
        self._ground = found if isinstance(found, Volleys) else None
        self._ground_of = process
        return None

    def _leave_ground(self) -> None:
        """Let go of the shared memory; the processes have."""
        if self._ground is not None:
            self._ground.close()
        self._ground, self._ground_of = None, None

    def _hold(self, shape_set: int) -> Lost | None:
        """Bring the inputs of `shape_set` into memory and into the twins, compiled there. What
        goes wrong with max-autotune is noted and costs nothing else."""
        lost = self._make_inputs(shape_set)
        tune = self.autotune_error(shape_set) is None
        if lost is None and tune and not self._problem.large(shape_set):
            self._tuned.post(shape_set)  # meanwhile; what is large is compiled one after the other
        lost = lost or self._twin.hold(shape_set)
        failed = self._tuned.hold(shape_set) if lost is None and tune else None
        if lost is None and not all(t.calibrated(shape_set) for t in self._twins()):
            with self._timing():
                lost = self._twin.calibrate(shape_set)
                failed = failed or self._tuned.calibrate(shape_set)
                if lost is None and self._copy_gb_per_s is None and self._twin.process is not None:
                    self._time_copy(self._twin.process)  # while the GPU is its own
        if failed is not None:
            self._tuned.give_up(shape_set, failed)
        return lost

    def _make_inputs(self, shape_set: int) -> Lost | None:
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
        for twin in self._twins():
            twin.forget()
        self._leave_ground()

    def _extras(self, side: RemoteSide) -> Extras | Lost:
        peak = side.peak_bytes()
        if isinstance(peak, Lost):
            return peak
        if not self._settings.extras:
            return Extras(peak)
        bench = side.do_bench_us() if self._settings.records else None
        if isinstance(bench, Lost):
            return bench
        if side.name == AUTOTUNED:
            return Extras(peak, bench)
        energy = energy_per_call_mj(side, self._gauge, self._settings.energy_s)
        return energy if isinstance(energy, Lost) else Extras(peak, bench, energy)

    def _baseline(self, side: RemoteSide, shape_set: int) -> Extras:
        """A baseline's extras, measured with the first candidate and kept for the others."""
        key = (shape_set, side.name)
        if key not in self._baselines:
            found = self._extras(side)
            self._baselines[key] = Extras(0) if isinstance(found, Lost) else found
        return self._baselines[key]


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    return {name for name, value in before.items() if after.get(name) != value}
