"""How does the parent ask a side for its times without believing malformed answers?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeGuard

from agentkernel.domain.plain_text import plain_line
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.timing.bench import KernelLaunch, Sustained, subtract_event_time
from agentkernel.tools.sandbox.protocol import JSON

AUTOTUNED: Final = "max-autotune"
"""The side of torch.compile in the faster of its two such modes, in a process of its own."""
Mode = Literal["default", "max-autotune", "max-autotune-no-cudagraphs"]
TUNED_MODES: Final[tuple[Mode, ...]] = ("max-autotune", "max-autotune-no-cudagraphs")
"""CUDA graphs save launches and copy every input: neither mode is always the faster one."""


class RequestChannel(Protocol):
    """A request to another process; what comes back is JSON or the loss of that process."""

    def ask(
        self, request: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | SideFailed: ...


class RemoteSide:
    """One callable in another process. Every answer is checked; a wrong one loses the side.
    `event_us` is taken off the time of each call (`Bench.event_us`)."""

    def __init__(
        self, name: str, line: RequestChannel, timeout_s: float, event_us: float = 0.0
    ) -> None:
        self.name = name
        self._event_us = event_us
        self._line = line
        self._timeout_s = timeout_s

    def block(self, calls: int) -> tuple[float, ...] | SideFailed:
        """Microseconds of `calls` cold calls."""
        answer = self._ask("block", calls=calls)
        if isinstance(answer, SideFailed):
            return answer
        found = answer.get("us")
        if isinstance(found, list) and len(found) == calls:
            times = [item for item in found if is_time(item)]
            if len(times) == calls:
                return subtract_event_time(times, self._event_us)
        return self._malformed("block", answer)

    def sustain(self, seconds: float) -> Sustained | SideFailed:
        """A run without pauses."""
        answer = self._ask("sustain", seconds=seconds)
        if isinstance(answer, SideFailed):
            return answer
        calls, wall = answer.get("calls"), answer.get("seconds")
        if isinstance(calls, int) and calls > 0 and is_time(wall):
            return Sustained(calls, wall)
        return self._malformed("sustain", answer)

    def peak_bytes(self) -> int | SideFailed:
        """Device memory of one call beyond what was there."""
        answer = self._ask("peak")
        if isinstance(answer, SideFailed):
            return answer
        found = answer.get("bytes")
        if isinstance(found, int) and found >= 0:
            return found
        return self._malformed("peak", answer)

    def do_bench_us(self) -> float | SideFailed | None:
        """Triton's own timing, in microseconds; None where there is none."""
        answer = self._ask("do_bench")
        if isinstance(answer, SideFailed):
            return answer
        found = answer.get("us")
        if found is None or is_time(found):
            return found
        return self._malformed("do_bench", answer)

    def launches(self) -> tuple[KernelLaunch, ...] | SideFailed:
        """What one call put on the device."""
        answer = self._ask("launches")
        if isinstance(answer, SideFailed):
            return answer
        found = answer.get("launches")
        if isinstance(found, list):
            items = [
                KernelLaunch(plain_line(item[0]), float(item[1]))
                for item in found
                if isinstance(item, list)
                and len(item) == 2
                and isinstance(item[0], str)
                and isinstance(item[1], int | float)
            ]
            if len(items) == len(found):
                return tuple(items)
        return self._malformed("launches", answer)

    def _ask(self, do: str, **more: object) -> dict[str, JSON] | SideFailed:
        answer = self._line.ask({"do": do, "side": self.name, **more}, self._timeout_s)
        if isinstance(answer, SideFailed):
            return answer.model_copy(update={"side": self.name})
        return answer

    def _malformed(self, do: str, answer: object) -> SideFailed:
        return SideFailed(side=self.name, reason="malformed", log=f"{do}: {str(answer)[:300]}")


def is_time(value: object) -> TypeGuard[float]:
    """True for a positive finite number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )
