"""Baseline processes as the parent sees them: started, fed, compiled, timed and ended."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast

from agentkernel.domain.profile import LEFT_OUT
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.stages import overlapped
from agentkernel.runtime.worker import ChildProcess, WorkerDied
from agentkernel.tools.profiler.compile_workers import compile_threads
from agentkernel.tools.profiler.rounds import (
    AUTOTUNED,
    TUNED_MODES,
    Mode,
    ProfileSettings,
    SideFailed,
)
from agentkernel.tools.sandbox.protocol import JSON

ENTRY = "agentkernel.tools.profiler.baseline_process:serve"


class BaselineProcess:
    """One process of `agentkernel.tools.profiler.baseline_process`; a `Line` for RemoteSide.

    Requests can be posted ahead: it works on them while the caller does something else, and `ask`
    for the same thing takes the answer. After an answer that does not come in time, or at all, the
    process is gone for good.
    """

    def __init__(self) -> None:
        threads = str(compile_threads())
        self._process = ChildProcess(ENTRY, defaults={"TORCHINDUCTOR_COMPILE_THREADS": threads})
        self._posted: deque[str] = deque()
        self._taken: deque[tuple[str, dict[str, JSON] | SideFailed]] = deque()
        """Answers that have come before somebody asked."""

    @property
    def alive(self) -> bool:
        """False once it died or was ended."""
        return self._process.alive

    @property
    def pids(self) -> list[int]:
        """The process, as this one numbers it."""
        return [self._process.pid]

    def post(self, request: Mapping[str, object]) -> None:
        """Send a small request now and leave its answer to the `ask` with the same words."""
        self._process.send(_packed(request))
        self._posted.append(_words(request))

    def answered(self) -> bool:
        """True once everything that was posted has an answer, or the process is gone."""
        while self._posted and self._process.answered():
            words = self._posted.popleft()
            self._taken.append((words, self._receive(words, 0.0)))
        return not self._posted

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, JSON] | SideFailed:
        """Send one request and wait for its answer; past `timeout_s` the process is killed.

        What was posted before and is not this request is done first, its answer forgotten.
        """
        while self._taken or self._posted:
            if self._taken:
                words, answer = self._taken.popleft()
            else:
                words = self._posted.popleft()
                answer = self._receive(words, timeout_s)
            if words == _words(request):
                return answer
        self._process.send(_packed(request))
        return self._receive(_words(request), timeout_s)

    def _receive(self, words: str, timeout_s: float) -> dict[str, JSON] | SideFailed:
        """The next answer, which is to the request of `words`."""
        began = time.monotonic()
        frame = self._process.receive(timeout_s)
        waited_s = time.monotonic() - began
        if isinstance(frame, WorkerDied):
            reason, log = "died", frame.log or f"exit {frame.exit_code}"
            if frame.exit_code is None:
                reason, log = "timeout", frame.reason
            return SideFailed(side="twin", reason=reason, log=log)
        reply = cast("dict[str, JSON]", pickle.loads(frame))
        value = reply.get("ok")
        gpu_lock.waited_for(min(waited_s, float(str(reply.get("queued_s", 0.0)))))
        name = _stage_of(words)
        if name is not None:
            overlapped(name, float(str(reply.get("took_s", 0.0))))
        if isinstance(value, dict):
            return value
        return SideFailed(side="twin", reason=str(reply.get("line")), log=str(reply.get("error")))

    def close(self) -> None:
        """End it and what it started (Inductor's compile workers)."""
        self._process.close()


def _words(request: Mapping[str, object]) -> str:
    """What a request is about."""
    return f"{request['do']} {request.get('shape_set')} {request.get('mode')}"


def _stage_of(words: str) -> str | None:
    """Where the seconds of such a request count, which the process spends beside the run."""
    do, _, mode = words.split()
    if do == "compile":
        return "torch.compile" if mode == "default" else AUTOTUNED
    return "baselines' start" if do in ("start", "prepare") else None


def _packed(request: Mapping[str, object]) -> bytes:
    """Classes of the user's own script travel by value: the baseline process's main module is
    another one."""
    import cloudpickle

    return cast(bytes, cloudpickle.dumps(dict(request)))


LOCK_WAIT_S = 900.0
"""What a process may wait at the gate beside its own limits, where several runs share the GPU."""
OWN_WAIT_S = 120.0
"""The same where the run has the gate to itself: what its other baseline may tune for."""
SLACK_S = 30.0
"""A process that ends a compilation itself is given this much to say so."""
BESIDE = 2.0
"""So many times its limit max-autotune may take where lanes share a GPU: at the processors it comes
behind the compilers of their searches, and a limit is meant for what it needs itself."""


class ProblemRequests(Protocol):
    """The requests that bring a problem into a process."""

    def start_request(self) -> dict[str, object]: ...

    def prepare_request(self, shape_set: int, *, eager: bool) -> dict[str, object]: ...

    def large(self, shape_set: int) -> bool: ...


class BaselineRole(NamedTuple):
    """What a process is for: `eager`, modes of torch.compile of which the fastest is timed, and
    their limits.

    `compile_limit_s` is kept by the parent, for each mode; `own_limit_s` by the process itself, for
    all modes together, in which waiting at the gate does not count.
    """

    eager: bool
    modes: tuple[Mode, ...]
    start_limit_s: float
    compile_limit_s: float
    call_limit_s: float
    own_limit_s: float | None = None


def main_role(settings: ProfileSettings) -> BaselineRole:
    """Eager and torch.compile in its default mode."""
    return BaselineRole(
        eager=True,
        modes=("default",) if settings.compare_compile else (),
        start_limit_s=settings.start_limit_s,
        compile_limit_s=settings.compile_limit_s,
        call_limit_s=settings.call_limit_s,
    )


def autotuned_role(settings: ProfileSettings) -> BaselineRole:
    """torch.compile's max-autotune, with CUDA graphs and without."""
    limit_s = settings.autotune_limit_s * (BESIDE if gpu_lock.has_other_users() else 1.0)
    return BaselineRole(
        eager=False,
        modes=TUNED_MODES,
        start_limit_s=settings.start_limit_s,
        compile_limit_s=limit_s + SLACK_S,
        call_limit_s=settings.call_limit_s,
        own_limit_s=limit_s,
    )


class PreparedBaseline:
    """One baseline process: the weights, one shape set's inputs, and a compiled form of the module.

    Where it holds eager too, a compilation that fails or hangs is noted and eager goes on; a
    process that has nothing else then ends. None of this may wait for it while holding the gate,
    which it goes through itself.
    """

    def __init__(self, feed: ProblemRequests, role: BaselineRole) -> None:
        self._feed = feed
        self._role = role
        self._holds: int | None = None
        self._fresh = False
        self._calibrated = False
        self.process: BaselineProcess | None = None
        self._failed: dict[tuple[int, Mode], str] = {}
        self.errors: dict[int, str] = {}
        """Why the compiled form has no time, by shape set: no mode works."""
        self.modes: dict[int, Mode] = {}
        """In which mode the compiled form is timed, by shape set."""
        self.outputs: object = None
        """Dtype and shape of eager's outputs on the shape set in memory."""
        self.flush_us = 0.0
        self.event_us = 0.0

    @property
    def fresh(self) -> bool:
        """True from `post` until its answers are taken."""
        return self._fresh

    def post(self, shape_set: int) -> None:
        """Begin with all of it while the caller does something else; where requests are small."""
        requests = [
            self._feed.start_request(),
            self._feed.prepare_request(shape_set, eager=self._role.eager),
        ]
        requests += [self._compile_request(shape_set, mode) for mode in self._left(shape_set)]
        if self.process is not None or any(sends_tensors(request) for request in requests):
            return
        self.process = BaselineProcess()
        self._fresh = True
        for request in requests:
            self.process.post(request)

    def ready(self) -> bool:
        """True where nothing that was begun ahead is still at work."""
        return self.process is None or not self._fresh or self.process.answered()

    def start(self) -> SideFailed | None:
        """Start the process with the weights, unless it runs. What one that was begun ahead has
        to say is heard, though it may have ended since."""
        if self.process is not None and self.process.alive and not self._fresh:
            return None
        if self.process is None or not (self.process.alive or self._fresh):
            self.end()
            self.process = BaselineProcess()
        self._fresh = False
        answer = self.process.ask(
            self._feed.start_request(), limit_with_lock_wait(self._role.start_limit_s)
        )
        if isinstance(answer, SideFailed):
            self.end()
            return answer.evolve(side="eager")
        self._calibrated = False
        return None

    def calibrated(self, shape_set: int) -> bool:
        """True where there is nothing to calibrate any more."""
        decided = shape_set in self.modes or shape_set in self.errors
        return self.process is None or (self._calibrated and decided)

    def calibrate(self, shape_set: int) -> SideFailed | None:
        """Once a process: what a flush and two events cost there; once a shape set: which mode is
        the fastest. With the GPU alone, since every time rests on it."""
        failure = None if self._calibrated else self._find_costs()
        if failure is None and not self.calibrated(shape_set):
            failure = self._choose(shape_set)
        return failure

    def _find_costs(self) -> SideFailed | None:
        if self.process is None:
            return None
        answer = self.process.ask({"do": "calibrate"}, self._role.call_limit_s)
        if isinstance(answer, SideFailed):
            return answer.evolve(side="eager")
        self.flush_us = float(str(answer["flush_us"]))
        self.event_us = float(str(answer["event_us"]))
        self._calibrated = True
        return None

    def _choose(self, shape_set: int) -> SideFailed | None:
        if self.process is None:
            return None
        request = {"do": "choose", "shape_set": shape_set, "modes": self._left(shape_set)}
        answer = self.process.ask(request, self._role.call_limit_s)
        if isinstance(answer, SideFailed):
            return answer
        self.modes[shape_set] = cast(Mode, answer["mode"])
        return None

    def hold(self, shape_set: int) -> SideFailed | None:
        """Have `shape_set` in the process, compiled there; a Lost where not even eager runs."""
        ahead = self._fresh
        failure = self._start_with(shape_set)
        if failure is not None and ahead:
            self.end()
            failure = self._start_with(shape_set)
        return failure

    def forget(self) -> None:
        """Let go of the inputs, so that they may be freed; nothing posted ahead goes on."""
        if self.process is not None and self._holds is not None:
            self.process.ask({"do": "forget"}, self._role.call_limit_s)
            self._holds = None
        if self._fresh:
            self.end()

    def give_up(self, shape_set: int, failure: SideFailed) -> None:
        """Its compiled form has no time for this shape set: end the process and say why."""
        self.errors[shape_set] = _why(failure)
        self.end()

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.close()
        self.process, self._holds, self._fresh = None, None, False

    def _start_with(self, shape_set: int) -> SideFailed | None:
        failure = self.start()
        if failure is None and self._holds != shape_set:
            failure = self._take(shape_set)
        return failure

    def _take(self, shape_set: int) -> SideFailed | None:
        if self.process is None:
            return SideFailed(side="twin", reason="died", log="")
        role = self._role
        request = self._feed.prepare_request(shape_set, eager=role.eager)
        answer = self.process.ask(request, limit_with_lock_wait(role.start_limit_s))
        if isinstance(answer, SideFailed):
            return answer.evolve(side="eager")
        self._holds = shape_set
        self.outputs = answer.get("outputs")
        if not role.modes:
            self.errors[shape_set] = LEFT_OUT
        return None if shape_set in self.errors else self._compile(shape_set, self.process)

    def _compile(self, shape_set: int, process: BaselineProcess) -> SideFailed | None:
        """In every mode that is left. Where one takes the process down, all again without it."""
        for mode in self._left(shape_set):
            request = self._compile_request(shape_set, mode)
            answer = process.ask(request, self._compile_wait_s())
            if isinstance(answer, SideFailed):
                self._failed[shape_set, mode] = _why(answer)
                if answer.reason == "timeout" and mode == self._role.modes[0]:
                    self._failed |= {(shape_set, item): _why(answer) for item in self._role.modes}
                ended = answer.reason == "timeout" or not process.alive
                if ended or "CUDA error" in answer.log:
                    return self._again(shape_set)
        self._decide(shape_set)
        return None

    def _again(self, shape_set: int) -> SideFailed | None:
        self.end()
        self._decide(shape_set)
        if shape_set in self.errors and not self._role.eager:
            return None
        return self.start() or self._take(shape_set)

    def _decide(self, shape_set: int) -> None:
        """Where one mode is left it is the one; where none is, so much is known."""
        left = self._left(shape_set)
        if len(left) == 1:
            self.modes[shape_set] = left[0]
        elif not left:
            failed = [self._failed.get((shape_set, mode)) for mode in self._role.modes]
            self.errors[shape_set] = next(why for why in failed if why is not None)
            if not self._role.eager:
                self.end()

    def _left(self, shape_set: int) -> list[Mode]:
        """The mode that is timed, or those that may be."""
        chosen = self.modes.get(shape_set)
        may = self._role.modes if chosen is None else (chosen,)
        if chosen is None and self._feed.large(shape_set):
            # A graph keeps a second copy of the inputs and writes it at every call.
            may = tuple(mode for mode in may if mode != "max-autotune")
        return [mode for mode in may if (shape_set, mode) not in self._failed]

    def _compile_request(self, shape_set: int, mode: Mode) -> dict[str, object]:
        return {
            "do": "compile",
            "shape_set": shape_set,
            "mode": mode,
            "limit_s": self._role.own_limit_s,
        }

    def _compile_wait_s(self) -> float:
        return limit_with_lock_wait(self._role.compile_limit_s)


def limit_with_lock_wait(limit_s: float) -> float:
    """A limit for what goes through the gate, where there is one."""
    return limit_s + (
        LOCK_WAIT_S if gpu_lock.has_other_users() else OWN_WAIT_S if gpu_lock.is_enabled() else 0.0
    )


def sends_tensors(request: Mapping[str, object]) -> bool:
    """True where a request carries the numbers themselves, which are too much for a pipe."""
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(item, torch.Tensor) for item in tree_leaves(dict(request)))


def _why(failure: SideFailed) -> str:
    return f"{failure.reason}: {failure.log}"[-1500:]
