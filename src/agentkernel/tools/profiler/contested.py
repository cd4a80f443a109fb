"""What does a measurement of one shape set yield, before it is made into figures?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentkernel.domain.profile import ClockCheck, GpuState, MatmulPrecision
from agentkernel.tools.profiler.rounds import Rounds
from agentkernel.tools.profiler.timing.bench import KernelLaunch


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
    launches: tuple[KernelLaunch, ...]
    gpu: GpuState
    matmul_precision: MatmulPrecision = "highest"
    autotuned: SideMeasures | None = None
    autotune_error: str | None = None
    autotuned_mode: str | None = None
    clock: ClockCheck | None = None
    eager_clock: ClockCheck | None = None
