"""State of the GPU during a measurement, read through NVML."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import NamedTuple, Protocol

import pynvml

from agentkernel.domain.errors import MissingDependency
from agentkernel.domain.profile import GpuState
from agentkernel.runtime import gpu_lock

REASONS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clock event reasons (nvml.h, section NvmlClocksEventReasons)."""
THROTTLED = frozenset(
    {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
"""Reasons that spoil a measurement by themselves."""
HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost"})


class Reading(NamedTuple):
    """One look at the GPU: seconds of `time.monotonic`, active reasons, SM clock, power."""

    time_s: float
    reasons: tuple[str, ...]
    sm_clock_mhz: int | None = None
    power_w: float | None = None


class Gauge(Protocol):
    """Where readings come from: NVML, or a simulation in the tests."""

    def read(self) -> Reading: ...

    def energy_mj(self) -> float | None: ...

    def state(self) -> GpuState: ...


def reasons_of(mask: int) -> tuple[str, ...]:
    """Names of the bits set in `mask`; an unknown bit is named by its value."""
    names = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return (*names, f"unknown_{rest:#x}") if rest else tuple(names)


def busy_state(idle: GpuState, readings: Sequence[Reading]) -> GpuState:
    """`idle` with what was seen under load: median clock and power, reasons but harmless ones."""
    clocks = [item.sm_clock_mhz for item in readings if item.sm_clock_mhz is not None]
    powers = [item.power_w for item in readings if item.power_w is not None]
    seen = sorted({name for item in readings for name in item.reasons} - HARMLESS)
    return idle.evolve(
        sm_clock_mhz=int(median(clocks)) if clocks else idle.sm_clock_mhz,
        power_w=round(median(powers), 1) if powers else idle.power_w,
        throttle_reasons=tuple(seen),
    )


class NvmlGauge:
    """NVML for one GPU, found by `uuid` ("GPU-…") or else by its `index`.

    What a GPU or driver does not support reads as None. Raises MissingDependency where NVML is not
    there at all.
    """

    def __init__(self, uuid: str | None = None, index: int = 0) -> None:
        try:
            pynvml.nvmlInit()
            self._handle = _handle(uuid, index)
        except pynvml.NVMLError as error:
            raise MissingDependency(
                f"NVML does not answer for GPU {uuid or index}: {error}. Expected a loaded NVIDIA "
                "driver. Next: run nvidia-smi."
            ) from error

    def read(self) -> Reading:
        """Throttle reasons, SM clock (MHz) and power (W) now."""
        mask = _ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if mask is None:
            mask = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        power = _ask("nvmlDeviceGetPowerUsage", self._handle)
        return Reading(
            time_s=time.monotonic(),
            reasons=reasons_of(int(mask or 0)),
            sm_clock_mhz=_ask("nvmlDeviceGetClockInfo", self._handle, pynvml.NVML_CLOCK_SM),
            power_w=None if power is None else power / 1e3,
        )

    def energy_mj(self) -> float | None:
        """Millijoules since the driver was loaded; None before Volta."""
        return _ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)

    def state(self) -> GpuState:
        """Name, driver, clocks, temperature, ECC and who else computes on it."""
        handle = self._handle
        now = self.read()
        return GpuState(
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            sm_clock_mhz=now.sm_clock_mhz,
            memory_clock_mhz=_ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM),
            temperature_c=_ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
            power_w=now.power_w,
            throttle_reasons=tuple(name for name in now.reasons if name not in HARMLESS),
            ecc=self._ecc(),
            other_processes=self._other_processes(),
        )

    def _other_processes(self) -> int | None:
        """Compute processes on the GPU that are neither this one nor its descendants; None where
        NVML counts processes otherwise than we do (in a container it sees the host's numbers), and
        where other runs share the gate: they wait meanwhile."""
        if gpu_lock.has_other_users():
            return None
        try:
            listed = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except pynvml.NVMLError:
            return None
        pids = [item.pid for item in listed]
        if pids and os.getpid() not in pids:
            return None
        return sum(1 for pid in pids if not _is_ours(pid))

    def _ecc(self) -> bool | None:
        try:
            return bool(pynvml.nvmlDeviceGetEccMode(self._handle)[0])
        except pynvml.NVMLError:
            return None


class GaugeMonitor:
    """Reads a gauge in a thread, every `period_s`: what went on during a block?"""

    def __init__(self, gauge: Gauge, period_s: float = 0.004) -> None:
        self._gauge = gauge
        self._period_s = period_s
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True, name="nvml-watch")

    def __enter__(self) -> GaugeMonitor:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def now(self) -> float:
        """Seconds of the clock that readings carry."""
        return time.monotonic()

    def between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]:
        """Readings taken in that span; where none fell into it, one taken now."""
        held = tuple(item for item in self._readings if begin_s <= item.time_s <= end_s)
        return held or (self._gauge.read(),)

    def _poll(self) -> None:
        while not self._stop.wait(self._period_s):
            self._readings.append(self._gauge.read())


def _handle(uuid: str | None, index: int) -> object:
    """By `uuid`, and by `index` where NVML does not know that name (MIG slices)."""
    if uuid is not None:
        with suppress(pynvml.NVMLError):
            found: object = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            return found
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def _ask(name: str, *args: object) -> int | None:
    """One NVML question; None where this GPU, driver or binding has no answer to it."""
    function = getattr(pynvml, name, None)
    if function is None:
        return None
    try:
        return int(function(*args))
    except pynvml.NVMLError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _is_ours(pid: int) -> bool:
    """True for this process and what it started, as /proc shows."""
    current = pid
    while current > 1:
        if current == os.getpid():
            return True
        parent = 0
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{current}/stat").read_text(encoding="utf-8")
            parent = int(text.rpartition(")")[2].split()[1])
        current = parent
    return False
