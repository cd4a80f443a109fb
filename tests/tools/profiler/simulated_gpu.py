"""A simulated GPU's gauge, and sides whose times are known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from agentkernel.domain.profile import GpuState
from agentkernel.tools.profiler.nvml import Reading
from agentkernel.tools.profiler.rounds import SideFailed

STATE = GpuState(
    name="Simulated GPU", driver="1.0", sm_clock_mhz=210, memory_clock_mhz=2600, temperature_c=40,
    power_w=80.0,
)  # fmt: skip


@dataclass
class SimulatedGauge:
    """Always the same reading; the energy counter advances 1 J with every look."""

    reading: Reading = field(default_factory=lambda: Reading(0.0, (), 1980, 500.0))
    energy: float | None = None

    def read(self) -> Reading:
        return self.reading

    def energy_mj(self) -> float | None:
        if self.energy is not None:
            self.energy += 1000.0
        return self.energy

    def state(self) -> GpuState:
        return STATE


@dataclass
class SimulatedClockwork:
    """A clock that sides advance, and readings that a test writes down by moment."""

    time_s: float = 0.0
    clock_mhz: int = 1980
    spells: list[tuple[float, float, tuple[str, ...], int]] = field(default_factory=list)
    """(begin, end, reasons, SM clock) of times in which the GPU is not at its best."""

    def now(self) -> float:
        return self.time_s

    def between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]:
        for begin, end, reasons, clock in self.spells:
            if begin <= end_s and begin_s <= end:
                return (Reading(end_s, reasons, clock, 300.0),)
        return (Reading(end_s, (), self.clock_mhz, 300.0),)


@dataclass
class SimulatedSide:
    """A side that takes `call_us` with relative noise, and ever longer by `drift_per_s`."""

    name: str
    call_us: float
    clockwork: SimulatedClockwork
    noise: float = 0.02
    drift_per_s: float = 0.0
    dies_after: int | None = None
    seed: int = 0
    asked: list[int] = field(default_factory=list)

    def block(self, calls: int) -> tuple[float, ...] | SideFailed:
        self.asked.append(calls)
        if self.dies_after is not None and len(self.asked) > self.dies_after:
            return SideFailed(side=self.name, reason="timeout", log="no answer within 60 s")
        generator = random.Random(f"{self.seed}-{self.name}-{len(self.asked)}")
        slow = 1.0 + self.drift_per_s * self.clockwork.time_s
        samples = tuple(
            self.call_us * slow * (1.0 + abs(generator.gauss(0.0, self.noise)))
            for _ in range(calls)
        )
        self.clockwork.time_s += sum(samples) / 1e6 + calls * 80e-6
        return samples
