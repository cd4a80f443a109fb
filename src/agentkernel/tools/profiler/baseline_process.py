"""The trusted process that holds eager and compiled forms of the module and times them.

It uses the same timing code as the worker of the candidate. Messages are pickled both ways, since
both ends are trusted and the reference is the code of the user.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import TYPE_CHECKING, cast

from agentkernel.domain.errors import one_line
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.worker import serve_frames
from agentkernel.tools.problem.loading import restore_problem
from agentkernel.tools.profiler.compile_workers import (
    CompilerLocks,
    Deadline,
    patch_compiler,
    start_compile_workers,
)
from agentkernel.tools.profiler.rounds import AUTOTUNED, Mode
from agentkernel.tools.profiler.timing.arena import Buffers, Layout
from agentkernel.tools.profiler.timing.process import TimingServer, open_batch_memory, outputs_of
from agentkernel.tools.profiler.timing.stopwatch import LONG_CALL_US, CallTimer, Device
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.tensors import OpenTensors, TensorRef

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.domain.problem import Problem

LOG_CHARS = 4000
CHOICE_TURNS = 3
CHOICE_CALLS = 7
"""How often, and for how many calls, two modes are timed against each other."""


class BaselineServer:
    """The process's state: the module, its compiled forms a shape set and mode, the inputs now in
    memory. `out_of_time` is called where a compilation takes longer than its limit."""

    def __init__(self, out_of_time: Callable[[str], None]) -> None:
        self._out_of_time = out_of_time
        self._deadline = Deadline()
        self._locks = CompilerLocks(self._deadline)
        self._patched = False
        self._device: Device = "cpu"
        self._bench: TimingServer | None = None
        self._module: nn.Module | None = None
        self._compiled: dict[tuple[int, str], object] = {}
        self._left_s: dict[int, float] = {}
        """Of the time to compile a shape set in several modes."""
        self._inputs: tuple[object, ...] = ()
        self._input_numbers: list[int] = []
        self._opened = OpenTensors()

    def answer(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """One request; the timing ones go on to the workbench. Those that the parent awaits
        without holding the gate go through it here."""
        behind_lock = {"start": self._start, "prepare": self._prepare, "compile": self._compile}
        own = {
            "calibrate": self._calibrate,
            "choose": self._choose,
            "ground": self._ground,
            "forget": self._forget,
            "give_back": self._give_back,
            "copy": self._copy,
        }
        do = str(request["do"])
        if do in behind_lock:
            with self._locks.opened():
                done = behind_lock[do](request)
                self._workbench.settle()
                return done
        return own[do](request) if do in own else self._workbench.answer(request)

    @property
    def _workbench(self) -> TimingServer:
        if self._bench is None:
            raise RuntimeError("the baseline process was asked before 'start'")
        return self._bench

    def _start(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Build the module with the parent's own weights."""
        import torch

        torch.set_num_threads(1)  # beside other processes: threads that wait spin
        self._device = cast(Device, request["device"])
        if request["matmul_precision"] != torch.get_float32_matmul_precision():
            torch.set_float32_matmul_precision(str(request["matmul_precision"]))
        torch.backends.cudnn.benchmark = bool(request["cudnn_benchmark"])
        if not request["convolutions_round"]:
            # By the older name, which sets recurrent layers too: else it could no longer be read.
            torch.backends.cudnn.allow_tf32 = False
        problem = cast("Problem", request["problem"])
        loaded = restore_problem(problem, request["live"])
        module = loaded.build(seed=cast(int, request["seed"]), device="cpu")
        state = cast("dict[str, object]", request["state"])
        weights = {name: self._here(value) for name, value in state.items()}
        module.load_state_dict(weights, strict=False, assign=True)
        self._module = module.to(self._device).eval()
        self._bench = TimingServer(CallTimer(self._device, cast(int, request["flush_bytes"])))
        return {}

    def _calibrate(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """What a flush and two events cost."""
        bench = self._workbench.bench
        return {"flush_us": bench.flush_us(), "event_us": bench.event_us()}

    def _prepare(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Take the inputs of a shape set in and, where it is timed here, call eager on them."""
        if self._inputs:
            self._forget(request)
        listed = cast("Sequence[object]", request["inputs"])
        self._input_numbers = [item.number for item in listed if isinstance(item, TensorRef)]
        self._inputs = tuple(self._here(item) for item in listed)
        self._workbench.tidy = bool(request["large"])
        if not request["eager"]:
            return {}
        outputs = outputs_of(self._add("eager", self._module))
        self._workbench.add("null", self._ready, lambda *inputs: self._ready())
        return {"outputs": cast("JSON", outputs)}

    def _ready(self) -> list[torch.Tensor]:
        """Copies of a slot: an output that costs no work, and that nothing has to hold."""
        return [slot.clone() for slot in self._workbench.ready_slots()]

    def _give_back(self, request: Mapping[str, object]) -> dict[str, JSON]:
        self._workbench.bench.give_back()
        return {}

    def _ground(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Take the memory that batches share; files by their number in the parent."""
        refs = cast("Mapping[str, TensorRef]", request["buffers"])
        files = cast("Mapping[str, int]", request["files"])
        for name, ref in refs.items():
            path = f"/proc/{request['parent']}/fd/{files.get(name)}"
            fds = [os.open(path, os.O_RDWR)] if name in files else []
            self._opened.add([ref], fds)
            self._input_numbers.append(ref.number)
        self._workbench.ground = open_batch_memory(
            cast(Layout, request["layout"]),
            cast("Sequence[object]", request["values"]),
            Buffers(**{name: self._opened.get(ref) for name, ref in refs.items()}),
            cast(float, request["limit_s"]),
        )
        return {}

    def _forget(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Let go of the inputs, so that the parent may free them."""
        for side in ("eager", "compile", AUTOTUNED, "null"):
            self._workbench.drop(side)
        self._workbench.ground = None
        self._inputs = ()
        self._opened.drop(self._input_numbers)
        self._input_numbers = []
        self._workbench.bench.give_back()
        return {}

    def _compile(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """torch.compile in one of its modes for this shape set; kept while the process lives."""
        if not self._patched:
            patch_compiler(self._locks)
            start_compile_workers()
            self._patched = True
        mode, shape_set = cast(Mode, request["mode"]), cast(int, request["shape_set"])
        limit_s = cast("float | None", request["limit_s"])
        if limit_s is None:
            with self._locks.compiling():
                return self._compile_in(mode, shape_set)

        def expired() -> None:
            self._out_of_time(f"{mode} took longer than {limit_s:g} s to compile")

        left_s = self._left_s.get(shape_set, limit_s)
        try:
            with self._deadline.within(left_s, expired), self._locks.compiling():
                return self._compile_in(mode, shape_set)
        finally:
            self._left_s[shape_set] = self._deadline.remained_s

    def _compile_in(self, mode: Mode, shape_set: int) -> dict[str, JSON]:
        import torch

        if (shape_set, mode) not in self._compiled:
            torch._dynamo.config.recompile_limit = 64
            chosen = None if mode == "default" else mode
            made = torch.compile(self._module, dynamic=False, mode=chosen)
            self._compiled[shape_set, mode] = made
        self._time_in(mode, shape_set)
        return {}

    def _time_in(self, mode: Mode, shape_set: int) -> None:
        """Let that compiled form be the one that is timed. Under CUDA graphs every call overwrites
        the outputs of the one before: none of them is held past the next call."""
        side = "compile" if mode == "default" else AUTOTUNED
        self._add(side, self._compiled[shape_set, mode], holds=mode != "max-autotune")

    def _choose(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Which of `modes` is the fastest by cold calls in turn; it is the one that is timed."""
        modes = cast("Sequence[Mode]", request["modes"])
        shape_set = cast(int, request["shape_set"])
        bench, inputs = self._workbench.bench, self._inputs
        samples: dict[Mode, list[float]] = {mode: [] for mode in modes}
        for turn in range(CHOICE_TURNS):
            for mode in modes:
                function = cast("nn.Module", self._compiled[shape_set, mode])
                call = partial(function, *inputs)
                last_us = min(samples[mode], default=0.0)
                if turn < 2 or last_us < LONG_CALL_US:
                    samples[mode] += bench.block(call, CHOICE_CALLS if turn else 1, last_us)
        best = min(modes, key=lambda mode: median(samples[mode]))
        self._time_in(best, shape_set)
        return {"mode": best}

    def _copy(self, request: Mapping[str, object]) -> dict[str, JSON]:
        found = self._workbench.bench.copy_gb_per_s(cast(int, request["bytes"]))
        self._workbench.bench.give_back()
        return {"gb_per_s": found}

    def _add(self, side: str, module: object, *, holds: bool = True) -> object:
        """Name a callable and warm it up: compilation and first-use costs end here. Its output."""
        import torch

        function = cast("nn.Module", module)
        inputs = self._inputs
        with torch.no_grad():
            # The first call is mostly the processor's: it traces, compiles and loads kernels. Who
            # wants to time should not wait for that, so it goes through no door; what it runs on
            # the GPU is one call.
            function(*inputs)
            with self._locks.working():
                for _ in range(1 if self._workbench.tidy else 2):
                    found: object = function(*inputs)
                self._workbench.bench.wait()
        self._workbench.add(side, lambda: function(*inputs), function, holds=holds)
        return found

    def _here(self, value: object) -> object:
        """A shared tensor opened, a sent one moved to the device, anything else as it is."""
        import torch

        if isinstance(value, TensorRef):
            self._opened.add([value], [])
            return self._opened.get(value)
        return value.to(self._device) if isinstance(value, torch.Tensor) else value


def serve(line: Connection) -> None:
    """Answer until the parent closes the line, or a compilation is out of time."""

    def out_of_time(text: str) -> None:
        line.send_bytes(pickle.dumps({"error": text, "line": "timeout"}))
        os.killpg(0, signal.SIGKILL)

    baseline_process = BaselineServer(out_of_time)

    def answer(frame: bytes) -> bytes:
        began, queued_s = time.monotonic(), gpu_lock.waited_s()
        try:
            reply: dict[str, JSON] = {"ok": baseline_process.answer(pickle.loads(frame))}
        except Exception as error:  # noqa: BLE001 - the user's module may raise anything
            text = "".join(traceback.format_exception(error))
            named = one_line(f"{type(error).__name__}: {error}")
            reply = {"error": text[-LOG_CHARS:], "line": named}
        reply["took_s"] = time.monotonic() - began
        reply["queued_s"] = gpu_lock.waited_s() - queued_s
        return pickle.dumps(reply)

    serve_frames(line, answer)
