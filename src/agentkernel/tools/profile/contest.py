"""How do a candidate, eager and torch.compile run against each other on one device?"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from agentkernel.domain.profile import ClockCheck, GpuState
from agentkernel.tools.problems import LoadedProblem
from agentkernel.tools.profile.bench import Device, Launched
from agentkernel.tools.profile.candidate_process import CandidateProcess
from agentkernel.tools.profile.energy import energy_per_call_mj
from agentkernel.tools.profile.fresh import sums_of
from agentkernel.tools.profile.nvml import Gauge, Watch, busy_state
from agentkernel.tools.profile.rounds import Lost, Rounds, Side, measure_rounds
from agentkernel.tools.profile.settings import ProfileSettings
from agentkernel.tools.profile.sides import RemoteSide
from agentkernel.tools.profile.twin_process import TwinProcess
from agentkernel.tools.profile.volleys import CandidateSide, Volleys, VolleySide, lay_ground
from agentkernel.tools.profile.worker_ops import CANDIDATE
from agentkernel.tools.sandbox.session import open_worker, settle_spares
from agentkernel.tools.sandbox.tensors import share_tensor

if TYPE_CHECKING:
    import torch

COPY_BYTES = 1 << 30
AHEAD_BYTES = 4 << 30
"""Inputs up to this size are held from the start of a run: little beside what the judge
and the search need of a GPU's memory."""


class Extras(NamedTuple):
    """What is measured of one side beside its time; None where this device has no such figure."""

    peak_bytes: int
    do_bench_us: float | None = None
    energy_mj: float | None = None


@dataclass(frozen=True)
class Contested:
    """Everything that one shape set's measurement yields. `compiled` None: torch.compile failed.

    `launches` is empty where the profiler gives no record; the clocks are None where the device
    shares no memory between processes.
    """

    rounds: Rounds
    candidate: Extras
    eager: Extras
    compiled: Extras | None
    compile_error: str | None
    launches: tuple[Launched, ...]
    gpu: GpuState
    clock: ClockCheck | None = None
    eager_clock: ClockCheck | None = None


class Contest:
    """Holds the weights and the inputs of a problem, and the twin process, while a run lasts.

    The parent makes weights and inputs once, on the device; both processes map the same memory.
    The inputs of one shape set are in memory at a time. `device` "cpu" serves the tests.
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
        self._loaded = loaded
        self._settings = settings
        self._gauge = gauge
        self._flush_bytes = flush_bytes
        self._device: Device = device
        self._weights: dict[str, torch.Tensor] | None = None
        self._inputs: tuple[object, ...] = ()
        self._shape_set: int | None = None
        self._twin: TwinProcess | None = None
        self._twin_holds: int | None = None
        self._fresh = False
        self._compile_errors: dict[int, str] = {}
        self._baselines: dict[tuple[int, str], Extras] = {}
        self._copy_gb_per_s: float | None = None
        self._pace = settings.pace
        self._event_us = 0.0
        self._outputs: object = None
        self._ground: Volleys | None = None
        self._groundless = False
        self._own_writes: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_twin()
        self._inputs, self._weights = (), None
        self._empty_cache()

    def begin(self) -> None:
        """Let the twin start, warm up and compile the first shape set while others work.

        Only where the requests are small: device memory by handle, a module made from its source.
        """
        import torch

        specs = self._loaded.problem.shape_sets[0].tensors
        sizes = [math.prod(s.shape) * getattr(torch, s.dtype).itemsize for s in specs]
        several = len(self._loaded.problem.shape_sets) > 1
        if self._loaded.live is not None or several or sum(sizes) > AHEAD_BYTES:
            return
        if self._twin is not None or self._make_inputs(0) is not None:
            return
        requests = [self._start_request(), self._prepare_request(0)]
        if self._settings.compare_compile:
            requests.append({"do": "compile", "shape_set": 0})
        if not any(_sends_tensors(request) for request in requests):
            self._twin = TwinProcess()
            self._fresh = True
            for request in requests:
                self._twin.post(request)

    def settle(self) -> None:
        """Until what `begin` asked for is done, so that the device is quiet."""
        if self._twin is not None:
            self._twin.settle(self._settings.compile_limit_s)

    def start(self) -> Lost | None:
        """Start the twin with the weights, unless it runs."""
        if self._twin is not None and self._twin.alive and not self._fresh:
            return None
        if self._twin is None or not self._twin.alive:
            self._end_twin()
            self._twin = TwinProcess()
        self._fresh = False
        answer = self._twin.ask(self._start_request(), self._settings.start_limit_s)
        if isinstance(answer, Lost):
            self._end_twin()
            return answer.model_copy(update={"side": "eager"})
        flush_us = float(str(answer["flush_us"]))
        self._event_us = float(str(answer["event_us"]))
        self._pace = self._settings.pace.model_copy(update={"flush_us": flush_us})
        return None

    def copy_gb_per_s(self) -> float | Lost:
        """The copy ceiling, measured once (read and write counted)."""
        if self._copy_gb_per_s is None:
            begun = self._shape_set if self._fresh else None
            lost = self.start() if begun is None else self._hold(begun)
            if lost is not None or self._twin is None:
                return lost or Lost(side="twin", reason="died", log="")
            size = COPY_BYTES if self._device == "cuda" else 1 << 22
            answer = self._twin.ask({"do": "copy", "bytes": size}, self._settings.call_limit_s)
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
            lost = process.load(
                source,
                self._loaded.init_args,
                self._loaded.init_kwargs,
                self._parameters(),
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
        """The candidate against both baselines on one shape set, and all that is not a time.

        `record` notes the launches, after which the process's launches are slower: the last time.
        """
        lost = process.forget() or self._hold(shape_set) or process.prepare(self._inputs)
        if lost is not None or self._twin is None:
            return lost or Lost(side="twin", reason="died", log="")
        settings, limit = self._settings, self._settings.call_limit_s
        own_side = RemoteSide(CANDIDATE, process, limit, self._event_us)
        sides = [own_side, *self._twin_sides(shape_set)]
        timed = self._timed(process, shape_set)
        if isinstance(timed, Lost):
            return timed
        settle_spares()
        weights = process.weight_sums()
        with Watch(self._gauge) as watch:
            rounds = measure_rounds(timed or sides, watch, self._pace, settings.seed)
        if isinstance(rounds, Lost):
            return rounds
        changed = _changed(weights, process.weight_sums()) - self._own_writes
        if changed:
            text = f"written to: {', '.join(sorted(changed))}"
            return Lost(side=CANDIDATE, reason="weights_changed", log=text)
        gpu = busy_state(self._gauge.state(), rounds.readings())
        clock = _clock(timed)
        if isinstance(clock, Lost):
            return clock
        own = self._extras(sides[0])
        if isinstance(own, Lost):
            return own
        baselines = {side.name: self._baseline(side, shape_set) for side in sides[1:]}
        launches = sides[0].launches() if settings.extras and record else ()
        return Contested(
            rounds=rounds,
            candidate=own,
            eager=baselines["eager"],
            compiled=baselines.get("compile"),
            compile_error=self._compile_errors.get(shape_set),
            launches=() if isinstance(launches, Lost) else launches,
            gpu=gpu,
            clock=clock,
            eager_clock=_eager_clock(timed),
        )

    def measure_baselines(self, shape_set: int) -> Rounds | Lost:
        """Eager (first) and torch.compile alone, interleaved."""
        lost = self._hold(shape_set)
        if lost is not None or self._twin is None:
            return lost or Lost(side="twin", reason="died", log="")
        ground = self._laid()
        if isinstance(ground, Lost):
            return ground
        remote = self._twin_sides(shape_set)
        sides: Sequence[Side] = [ground.side(item.name) for item in remote] if ground else remote
        with Watch(self._gauge) as watch:
            return measure_rounds(sides, watch, self._pace, self._settings.seed)

    def compile_error(self, shape_set: int) -> str | None:
        """Why torch.compile has no time for this shape set; None where it has, or is untried."""
        return self._compile_errors.get(shape_set)

    def _twin_sides(self, shape_set: int) -> list[RemoteSide]:
        """Eager, and the compiled module where there is one."""
        if self._twin is None:
            return []
        names = ["eager"] + ([] if shape_set in self._compile_errors else ["compile"])
        limit = self._settings.call_limit_s
        return [RemoteSide(name, self._twin, limit, self._event_us) for name in names]

    def _timed(self, process: CandidateProcess, shape_set: int) -> list[VolleySide] | Lost:
        """The sides as volleys time them, the candidate first; none without shared memory."""
        ground = self._laid()
        if ground is None or isinstance(ground, Lost):
            return ground or []
        stand = process.ground(ground)
        if stand is None or isinstance(stand, Lost):
            return stand or []
        others = [ground.side(item.name) for item in self._twin_sides(shape_set)]
        return [ground.candidate(CANDIDATE, stand), *others]

    def _laid(self) -> Volleys | Lost | None:
        """The ground of the shape set in memory, laid at its first use."""
        if self._ground is not None or self._groundless or self._twin is None:
            return self._ground
        before = sums_of(self._parameters())
        found = lay_ground(
            self._twin,
            self._inputs,
            self._outputs,
            device=self._device,
            flush_bytes=self._flush_bytes,
            calls=self._pace.max_calls,
            limit_s=self._settings.call_limit_s,
            seed=self._settings.seed,
            event_us=self._event_us,
        )
        if isinstance(found, Lost) and not self._twin.alive:
            return found
        self._own_writes = frozenset(_changed(before, sums_of(self._parameters())))
        self._ground = found if isinstance(found, Volleys) else None
        self._groundless = self._ground is None
        return self._ground

    def _leave_ground(self) -> None:
        """Let go of the shared memory; the processes have."""
        if self._ground is not None:
            self._ground.close()
        self._ground, self._groundless = None, False

    def _hold(self, shape_set: int) -> Lost | None:
        """Bring the inputs of `shape_set` into memory and into the twin, compiled there."""
        lost = self._make_inputs(shape_set) or self.start()
        if lost is None and self._twin_holds != shape_set:
            lost = self._feed_twin(shape_set)
        return lost

    def _make_inputs(self, shape_set: int) -> Lost | None:
        """Bring the weights and the inputs of `shape_set` into memory, and no others."""
        import torch

        if self._shape_set == shape_set:
            return None
        if self._twin is not None and self._twin_holds is not None:
            self._twin.ask({"do": "forget"}, self._settings.call_limit_s)
            self._twin_holds = None
        self._leave_ground()
        if self._fresh:
            self._end_twin()
        self._inputs = ()
        self._empty_cache()
        self._shape_set = None
        try:
            self._parameters()
            self._inputs = self._loaded.make_inputs(
                shape_set, seed=self._settings.seed, device=self._device
            )
        except torch.OutOfMemoryError as error:
            return Lost(side="inputs", reason="memory", log=str(error))
        self._shape_set = shape_set
        return None

    def _feed_twin(self, shape_set: int) -> Lost | None:
        if self._twin is None:
            return Lost(side="twin", reason="died", log="")
        answer = self._twin.ask(self._prepare_request(shape_set), self._settings.start_limit_s)
        if isinstance(answer, Lost):
            return answer.model_copy(update={"side": "eager"})
        self._twin_holds = shape_set
        self._outputs = answer.get("outputs")
        if not self._settings.compare_compile:
            self._compile_errors[shape_set] = "left out on request"
        if shape_set in self._compile_errors:
            return None
        answer = self._twin.ask(
            {"do": "compile", "shape_set": shape_set}, self._settings.compile_limit_s
        )
        if not isinstance(answer, Lost):
            return None
        self._compile_errors[shape_set] = f"{answer.reason}: {answer.log}"[-1500:]
        if self._twin.alive and "CUDA error" not in answer.log:
            return None
        self._end_twin()
        return self.start() or self._feed_twin(shape_set)

    def _extras(self, side: RemoteSide) -> Extras | Lost:
        peak = side.peak_bytes()
        if isinstance(peak, Lost):
            return peak
        if not self._settings.extras:
            return Extras(peak)
        bench = side.do_bench_us()
        if isinstance(bench, Lost):
            return bench
        energy = energy_per_call_mj(side, self._gauge, self._settings.energy_s)
        return energy if isinstance(energy, Lost) else Extras(peak, bench, energy)

    def _baseline(self, side: RemoteSide, shape_set: int) -> Extras:
        """A baseline's extras, measured with the first candidate and kept for the others."""
        key = (shape_set, side.name)
        if key not in self._baselines:
            found = self._extras(side)
            self._baselines[key] = Extras(0) if isinstance(found, Lost) else found
        return self._baselines[key]

    def _prepare_request(self, shape_set: int) -> dict[str, object]:
        inputs = [self._sendable(item) for item in self._inputs]
        return {"do": "prepare", "shape_set": shape_set, "inputs": inputs}

    def _start_request(self) -> dict[str, object]:
        import torch

        live = self._loaded.live
        return {
            "do": "start",
            "device": self._device,
            "problem": self._loaded.problem,
            "live": None if live is None else (copy.deepcopy(live).cpu(), ()),
            "seed": self._settings.seed,
            "flush_bytes": self._flush_bytes,
            "matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "state": {name: self._sendable(value) for name, value in self._parameters().items()},
        }

    def _parameters(self) -> dict[str, torch.Tensor]:
        """The reference's state dict on the device, made once."""
        import torch

        if self._weights is None:
            module = self._loaded.build(seed=self._settings.seed, device=self._device)
            self._weights = {
                name: value.detach()
                for name, value in module.state_dict().items()
                if isinstance(value, torch.Tensor)
            }
        return self._weights

    def _sendable(self, value: object) -> object:
        """How the twin gets a value: device memory by handle, or else by copy."""
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "cuda":
            shared = share_tensor(value)
            if shared.ref.kind == "ipc":
                return shared.ref
            if shared.fd is not None:
                os.close(shared.fd)
        return value.detach().cpu()

    def _end_twin(self) -> None:
        if self._twin is not None:
            self._twin.__exit__(None, None, None)
        self._leave_ground()
        self._twin, self._twin_holds, self._fresh = None, None, False

    def _empty_cache(self) -> None:
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    return {name for name, value in before.items() if after.get(name) != value}


def _clock(timed: Sequence[VolleySide]) -> ClockCheck | Lost | None:
    own = timed[0] if timed else None
    return own.clock() if isinstance(own, CandidateSide) else None


def _eager_clock(timed: Sequence[VolleySide]) -> ClockCheck | None:
    own = timed[0] if timed else None
    return own.clock_of(timed[1]) if isinstance(own, CandidateSide) else None


def _sends_tensors(request: Mapping[str, object]) -> bool:
    """True where a request carries the numbers themselves, which are too much for a pipe."""
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(item, torch.Tensor) for item in tree_leaves(dict(request)))
