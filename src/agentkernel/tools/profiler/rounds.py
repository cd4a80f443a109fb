"""In which order are the sides timed, how often, and when is enough known?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from agentkernel.domain.base import Frozen
from agentkernel.tools.profiler.nvml import THROTTLED, Reading
from agentkernel.tools.ratio import half_width, paired_ratio

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
