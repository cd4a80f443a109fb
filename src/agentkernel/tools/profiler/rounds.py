"""Rounds of interleaved timing: the sides, their order, and when enough is known.

Answers of a remote side are checked; a malformed one ends the side.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal, Protocol, TypeGuard

from agentkernel.domain.base import Frozen
from agentkernel.domain.plain_text import plain_line
from agentkernel.domain.profile import MatmulPrecision
from agentkernel.domain.verdict import Precision
from agentkernel.tools.profiler.nvml import THROTTLED, Reading
from agentkernel.tools.profiler.timing.stopwatch import KernelLaunch, Sustained, subtract_event_time
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.speedup import half_width, paired_ratio

CLOCK_GAP = 0.05
"""A software power cap spoils a round only where the sides' SM clocks differ by more than this."""
ROUGH = 0.03
"""Past the usual time, a few rounds whose ratios are known less well than this get company."""


class Pace(Frozen):
    """How long to measure: at least `min_rounds`, then until every ratio is known within
    `half_width` (relative), `seconds` are over or `max_rounds` are done."""

    seconds: float = 2.5
    min_rounds: int = 12
    max_rounds: int = 60
    half_width: float = 0.008
    block_ms: float = 12.0
    max_calls: int = 100
    flush_us: float = 80.0
    """Device time of one L2 flush, which every call pays beside its own."""


class SideFailed(Frozen):
    """A side stopped answering: who, and why ("raised", "died", "timeout", …) with its log."""

    side: str
    reason: str
    log: str


class Side(Protocol):
    """One contender: the candidate, eager or the compiled module."""

    name: str

    def block(self, calls: int) -> tuple[float, ...] | SideFailed: ...


class GaugeClock(Protocol):
    """The parent's clock and what the GPU's gauge said between two moments of it."""

    def now(self) -> float: ...

    def between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]: ...


@dataclass(frozen=True)
class Round:
    """One block a side: single calls in microseconds and the readings taken meanwhile."""

    samples_us: dict[str, tuple[float, ...]]
    readings: dict[str, tuple[Reading, ...]]

    @property
    def throttled(self) -> bool:
        """True where the GPU slowed down in a way that makes the sides incomparable."""
        every = [item for held in self.readings.values() for item in held]
        reasons = {name for item in every for name in item.reasons}
        if reasons & THROTTLED:
            return True
        return "sw_power_cap" in reasons and _clock_gap(self.readings) > CLOCK_GAP

    def block_median(self, side: str) -> float:
        """Median of that side's calls in this round, in microseconds."""
        return median(self.samples_us[side])


@dataclass
class Rounds:
    """The rounds of one shape set, kept and discarded."""

    kept: list[Round] = field(default_factory=list)
    discarded: list[Round] = field(default_factory=list)

    def sides(self) -> tuple[str, ...]:
        """Who was timed; nobody where no round was kept."""
        return tuple(sorted(self.kept[0].samples_us)) if self.kept else ()

    def samples(self, side: str) -> list[float]:
        """Every kept single call of `side`, in microseconds."""
        return [value for item in self.kept for value in item.samples_us[side]]

    def medians(self, side: str) -> list[float]:
        """One block median a kept round, in microseconds."""
        return [item.block_median(side) for item in self.kept]

    def readings(self) -> tuple[Reading, ...]:
        """Readings of the kept rounds, or of the discarded ones where none was kept."""
        chosen = self.kept or self.discarded
        return tuple(one for item in chosen for held in item.readings.values() for one in held)


def measure_rounds(
    sides: Sequence[Side], clockwork: GaugeClock, pace: Pace, seed: int = 0
) -> Rounds | SideFailed:
    """Time the sides in shuffled, interleaved blocks. The first of `sides` is the candidate.

    A pilot block each sets the number of calls; it is thrown away, and so is the first full round
    (caches, allocator and clocks settle in it). A round that the GPU throttled
    in is set aside and counted. The result may hold no kept round: the caller decides what that
    means.
    """
    shuffled = random.Random(seed)
    begin = clockwork.now()
    calls: dict[str, int] = {}
    for side in sides:
        pilot = side.block(3)
        if isinstance(pilot, SideFailed):
            return pilot
        calls[side.name] = calls_per_block(median(pilot), pace)
    warm = _one_round(sides, calls, clockwork)
    if isinstance(warm, SideFailed):
        return warm
    rounds = Rounds()
    while not _enough(rounds, sides, pace, clockwork.now() - begin):
        order = shuffled.sample(list(sides), len(sides))
        found = _one_round(order, calls, clockwork)
        if isinstance(found, SideFailed):
            return found
        (rounds.discarded if found.throttled else rounds.kept).append(found)
    return rounds


def calls_per_block(call_us: float, pace: Pace) -> int:
    """Calls that fill about `block_ms`, flush included: 3 to `max_calls`; one where a call alone is
    longer than a block."""
    if call_us > pace.block_ms * 1e3:
        return 1
    wanted = pace.block_ms * 1e3 / (call_us + pace.flush_us)
    return int(min(max(wanted, 3), pace.max_calls))


def _one_round(
    order: Sequence[Side], calls: dict[str, int], clockwork: GaugeClock
) -> Round | SideFailed:
    samples: dict[str, tuple[float, ...]] = {}
    readings: dict[str, tuple[Reading, ...]] = {}
    for side in order:
        begin = clockwork.now()
        block = side.block(calls[side.name])
        if isinstance(block, SideFailed):
            return block
        samples[side.name] = block
        readings[side.name] = clockwork.between(begin, clockwork.now())
    return Round(samples, readings)


def _enough(rounds: Rounds, sides: Sequence[Side], pace: Pace, elapsed_s: float) -> bool:
    """True when the ratios are known well enough, or measuring on is pointless or too long.

    Time past `seconds` ends it at half of `min_rounds`; where the ratios are still rough then
    (other work at the processors makes launches late and rounds long), at half of `max_rounds`.
    Four times `seconds` ends it in any case, and so do more throttled rounds than `max_rounds`.
    """
    kept = len(rounds.kept)
    if kept >= pace.max_rounds or len(rounds.discarded) >= pace.max_rounds:
        return True
    if elapsed_s > 4 * pace.seconds and kept + len(rounds.discarded) >= 1:
        return True
    if elapsed_s > pace.seconds and kept >= (pace.min_rounds + 1) // 2:
        few = kept < pace.max_rounds // 2
        return not few or _widest(rounds, sides) <= max(ROUGH, pace.half_width)
    return kept >= pace.min_rounds and _widest(rounds, sides) <= pace.half_width


def _widest(rounds: Rounds, sides: Sequence[Side]) -> float:
    """The largest relative half-width over the baselines' ratios to the candidate."""
    candidate = rounds.medians(sides[0].name)
    return max(
        (
            half_width(paired_ratio(rounds.medians(side.name), candidate, resamples=400))
            for side in sides[1:]
        ),
        default=_own_half_width(candidate),
    )


def _own_half_width(medians_us: list[float]) -> float:
    """Relative half-width of the candidate's own median where there is no baseline beside it."""
    return half_width(paired_ratio(medians_us, [1.0] * len(medians_us), resamples=400))


def _clock_gap(readings: dict[str, tuple[Reading, ...]]) -> float:
    """1 - slowest / fastest side, by the median SM clock under load of each; 0 where unknown."""
    clocks = []
    for held in readings.values():
        busy = [item for item in held if "gpu_idle" not in item.reasons]
        known = [item.sm_clock_mhz for item in busy or held if item.sm_clock_mhz]
        if known:
            clocks.append(median(known))
    return 1.0 - min(clocks) / max(clocks) if clocks else 0.0


class ProfileSettings(Frozen):
    """Limits in seconds of wall time. `pace` holds for each shape set."""

    pace: Pace = Pace()
    shape_sets: tuple[int, ...] | None = None
    """Which shape sets to measure; None means all of them."""
    seed: int = 0
    precision: Precision = "strict"
    """Decides which compute peak the roofline is made of, and what the baselines may round."""
    compare_compile: bool = True
    """Without it torch.compile is left out, and `compile_error` says so."""
    max_autotune: bool = False
    """A third baseline: torch.compile with mode="max-autotune", in a process of its own. Without it
    `autotune_error` says that it was left out."""
    autotune_limit_s: float = 120.0
    """What that mode may take to compile one shape set; past it, it counts as failed."""
    extras: bool = True
    """do_bench, energy and the profiled call; peak memory is always measured."""
    records: bool = True
    """Of the extras, do_bench: what is shown and decides nothing."""
    energy_s: float = 0.25
    """Length of the sustained run that energy is read from; at least 0.2 s tells anything."""
    start_limit_s: float = 180.0
    """Starting a process, building the module, and its first calls with compilation."""
    compile_limit_s: float = 300.0
    """torch.compile of one shape set; past it the baseline counts as failed."""
    call_limit_s: float = 60.0
    """One block, do_bench or sustained run; past it the side counts as hanging."""
    allow_unsandboxed: bool = False
    keep_bytes: int = 1 << 30
    """A call whose inputs and outputs hold no more is kept ready from the start of a run: little
    beside what the judge and the search need of a GPU's memory. What holds more is in memory while
    it is timed, once for all sides."""


def baselines_matmul(precision: Precision, ambient: str) -> MatmulPrecision:
    """What PyTorch's own products may round while they are timed, under `precision`.

    Whoever allows a candidate TF32 could as well have set PyTorch's switch: a baseline that is kept
    in IEEE fp32 would make every such candidate look several times faster than it is. `ambient` is
    the process's `torch.get_float32_matmul_precision()`, which is kept where it allows more.
    """
    order: tuple[MatmulPrecision, ...] = ("highest", "high", "medium")
    allowed: dict[Precision, MatmulPrecision] = {
        "strict": "highest",
        "tf32": "high",
        "bf16": "medium",
    }
    found = next((item for item in order if item == ambient), order[0])
    return max(found, allowed[precision], key=order.index)


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
            return answer.evolve(side=self.name)
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
