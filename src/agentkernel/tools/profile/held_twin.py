"""What does a process that holds baselines have in memory, and at what did it fail?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from agentkernel.domain.profile import LEFT_OUT
from agentkernel.tools import gate
from agentkernel.tools.profile.rounds import Lost
from agentkernel.tools.profile.settings import ProfileSettings
from agentkernel.tools.profile.sides import AUTOTUNED
from agentkernel.tools.profile.twin_process import TwinProcess

GATE_WAIT_S = 900.0
"""What a process may wait at the gate beside its own limits, where several runs share the GPU."""
OWN_WAIT_S = 120.0
"""The same where the run has the gate to itself: what its other baseline may tune for."""
SLACK_S = 30.0
"""A process that ends a compilation itself is given this much to say so."""


class Feed(Protocol):
    """The requests that bring a problem into a process."""

    def start_request(self) -> dict[str, object]: ...

    def prepare_request(self, shape_set: int, *, eager: bool) -> dict[str, object]: ...


class Duty(NamedTuple):
    """What a process is for: `eager`, a mode of torch.compile (None: none), and their limits.

    `compile_limit_s` is kept by the parent; `own_limit_s` by the process itself, in which waiting
    at the gate does not count.
    """

    eager: bool
    mode: Literal["default", "max-autotune"] | None
    start_limit_s: float
    compile_limit_s: float
    call_limit_s: float
    own_limit_s: float | None = None


def main_duty(settings: ProfileSettings) -> Duty:
    """Eager and torch.compile in its default mode."""
    return Duty(
        eager=True,
        mode="default" if settings.compare_compile else None,
        start_limit_s=settings.start_limit_s,
        compile_limit_s=settings.compile_limit_s,
        call_limit_s=settings.call_limit_s,
    )


def tuned_duty(settings: ProfileSettings) -> Duty:
    """torch.compile's max-autotune."""
    return Duty(
        eager=False,
        mode=AUTOTUNED,
        start_limit_s=settings.start_limit_s,
        compile_limit_s=settings.autotune_limit_s + SLACK_S,
        call_limit_s=settings.call_limit_s,
        own_limit_s=settings.autotune_limit_s,
    )


class HeldTwin:
    """One twin process: the weights, one shape set's inputs, and a compiled form of the module.

    Where it holds eager too, a compilation that fails or hangs is noted and eager goes on; a
    process that has nothing else then ends. None of this may wait for it while holding the gate,
    which it goes through itself.
    """

    def __init__(self, feed: Feed, duty: Duty) -> None:
        self._feed = feed
        self._duty = duty
        self._holds: int | None = None
        self._fresh = False
        self._calibrated = False
        self.process: TwinProcess | None = None
        self.errors: dict[int, str] = {}
        """Why the compiled form has no time, by shape set."""
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
            self._feed.prepare_request(shape_set, eager=self._duty.eager),
        ]
        if self._duty.mode is not None:
            requests.append(self._compile_request(shape_set))
        if self.process is not None or any(sends_tensors(request) for request in requests):
            return
        self.process = TwinProcess()
        self._fresh = True
        for request in requests:
            self.process.post(request)

    def settle(self) -> None:
        """Until all that was posted is done."""
        if self.process is not None:
            self.process.settle(self._compile_wait_s())

    def start(self) -> Lost | None:
        """Start the process with the weights, unless it runs. What one that was begun ahead has
        to say is heard, though it may have ended since."""
        if self.process is not None and self.process.alive and not self._fresh:
            return None
        if self.process is None or not (self.process.alive or self._fresh):
            self.end()
            self.process = TwinProcess()
        self._fresh = False
        answer = self.process.ask(self._feed.start_request(), patient(self._duty.start_limit_s))
        if isinstance(answer, Lost):
            self.end()
            return answer.model_copy(update={"side": "eager"})
        self._calibrated = False
        return None

    @property
    def calibrated(self) -> bool:
        """True where there is nothing to calibrate any more."""
        return self.process is None or self._calibrated

    def calibrate(self) -> Lost | None:
        """Once a process: what a flush and two events cost there. With the GPU alone, since every
        time rests on it."""
        if self.process is None or self.calibrated:
            return None
        answer = self.process.ask({"do": "calibrate"}, self._duty.call_limit_s)
        if isinstance(answer, Lost):
            return answer.model_copy(update={"side": "eager"})
        self.flush_us = float(str(answer["flush_us"]))
        self.event_us = float(str(answer["event_us"]))
        self._calibrated = True
        return None

    def hold(self, shape_set: int) -> Lost | None:
        """Have `shape_set` in the process, compiled there; a Lost where not even eager runs."""
        ahead = self._fresh
        lost = self._start_with(shape_set)
        if lost is not None and ahead:
            self.end()
            lost = self._start_with(shape_set)
        return lost

    def forget(self) -> None:
        """Let go of the inputs, so that they may be freed; nothing posted ahead goes on."""
        if self.process is not None and self._holds is not None:
            self.process.ask({"do": "forget"}, self._duty.call_limit_s)
            self._holds = None
        if self._fresh:
            self.end()

    def give_up(self, shape_set: int, lost: Lost) -> None:
        """Its compiled form has no time for this shape set: end the process and say why."""
        self.errors[shape_set] = _why(lost)
        self.end()

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.__exit__(None, None, None)
        self.process, self._holds, self._fresh = None, None, False

    def _start_with(self, shape_set: int) -> Lost | None:
        lost = self.start()
        if lost is None and self._holds != shape_set:
            lost = self._take(shape_set)
        return lost

    def _take(self, shape_set: int) -> Lost | None:
        if self.process is None:
            return Lost(side="twin", reason="died", log="")
        duty = self._duty
        request = self._feed.prepare_request(shape_set, eager=duty.eager)
        answer = self.process.ask(request, patient(duty.start_limit_s))
        if isinstance(answer, Lost):
            return answer.model_copy(update={"side": "eager"})
        self._holds = shape_set
        self.outputs = answer.get("outputs")
        if duty.mode is None:
            self.errors[shape_set] = LEFT_OUT
        if shape_set in self.errors:
            return None
        answer = self.process.ask(self._compile_request(shape_set), self._compile_wait_s())
        if not isinstance(answer, Lost):
            return None
        self.errors[shape_set] = _why(answer)
        if duty.eager and self.process.alive and "CUDA error" not in answer.log:
            return None
        self.end()
        return (self.start() or self._take(shape_set)) if duty.eager else None

    def _compile_request(self, shape_set: int) -> dict[str, object]:
        return {
            "do": "compile",
            "shape_set": shape_set,
            "mode": self._duty.mode,
            "limit_s": self._duty.own_limit_s,
        }

    def _compile_wait_s(self) -> float:
        return patient(self._duty.compile_limit_s)


def patient(limit_s: float) -> float:
    """A limit for what goes through the gate."""
    return limit_s + (GATE_WAIT_S if gate.shared() else OWN_WAIT_S)


def sends_tensors(request: Mapping[str, object]) -> bool:
    """True where a request carries the numbers themselves, which are too much for a pipe."""
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(item, torch.Tensor) for item in tree_leaves(dict(request)))


def _why(lost: Lost) -> str:
    return f"{lost.reason}: {lost.log}"[-1500:]
