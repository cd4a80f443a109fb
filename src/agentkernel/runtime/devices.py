"""Which GPU is in this machine, asked without starting CUDA where NVML can answer?"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

Answer = TypeVar("Answer")
Handle = Any
"""NVML's handle of a GPU: a pointer to a structure of the library's own."""

QUERY_TIMEOUT_S = 60
QUERY = """
import json, sys, torch
index = int(sys.argv[1])
if not torch.cuda.is_available() or index >= torch.cuda.device_count():
    print("null")
else:
    found = torch.cuda.get_device_properties(index)
    names = ("name", "major", "minor", "multi_processor_count", "total_memory", "L2_cache_size",
             "shared_memory_per_multiprocessor", "shared_memory_per_block_optin", "warp_size",
             "regs_per_multiprocessor", "max_threads_per_multi_processor", "clock_rate",
             "memory_clock_rate", "memory_bus_width", "gcnArchName")
    print(json.dumps({name: getattr(found, name, None) for name in names}))
"""


@dataclass(frozen=True)
class LocalGpu:
    """A GPU of this machine. `index` is its number for CUDA; `source` names who said so."""

    index: int
    name: str
    arch: str
    """Triton's architecture: "90" for sm_90, "gfx942" for CDNA3."""
    memory_bytes: int
    driver: str
    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    memory_bus_bits: int | None
    power_limit_w: float | None
    source: str

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA compute capability, None for AMD."""
        return (int(self.arch[:-1]), int(self.arch[-1])) if self.arch.isdigit() else None


@dataclass(frozen=True)
class DeviceProperties:
    """What the CUDA or HIP runtime says of a GPU (sizes in bytes, clocks in kHz)."""

    name: str
    arch: str
    sm_count: int
    total_memory: int
    l2_bytes: int
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    threads_per_sm: int
    warp_size: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int


def local_gpu() -> LocalGpu | None:
    """The GPU that CUDA would call device 0, None where there is none.

    Asks NVML first, which leaves CUDA alone; a machine without NVML (AMD) asks torch in a process
    of its own, and only where a driver's device file is there.
    """
    if _visible_device() is None:
        return None
    return _ask_nvml(_from_nvml) or _from_runtime()


def free_memory() -> int | None:
    """Bytes that no process holds of the GPU that CUDA would call device 0; None without an answer
    of NVML's."""
    return _ask_nvml(lambda handle: int(pynvml.nvmlDeviceGetMemoryInfo(handle).free))


def device_properties(index: int = 0) -> DeviceProperties | None:
    """The runtime's view of GPU `index`, asked in a process of its own; None without an answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", QUERY, str(index)],
            capture_output=True,
            text=True,
            timeout=QUERY_TIMEOUT_S,
            check=False,
        )
        raw = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return None if raw is None else _properties(raw)


def _properties(raw: dict[str, object]) -> DeviceProperties:
    def number(key: str) -> int:
        value = raw.get(key)
        return int(value) if isinstance(value, int | float) else 0

    hip_arch = str(raw.get("gcnArchName") or "").split(":")[0]
    is_hip = hip_arch.startswith("gfx")
    shared = number("shared_memory_per_block_optin")
    return DeviceProperties(
        name=str(raw["name"]),
        arch=hip_arch if is_hip else f"{number('major')}{number('minor')}",
        sm_count=number("multi_processor_count"),
        total_memory=number("total_memory"),
        l2_bytes=number("L2_cache_size"),
        shared_per_sm=number("shared_memory_per_multiprocessor") or shared,
        shared_per_block=shared,
        registers_per_sm=number("regs_per_multiprocessor"),
        threads_per_sm=number("max_threads_per_multi_processor"),
        warp_size=number("warp_size"),
        clock_khz=number("clock_rate"),
        memory_clock_khz=number("memory_clock_rate"),
        memory_bus_bits=number("memory_bus_width"),
    )


def release_cached_memory(device: str) -> None:
    """Let other processes have the device memory that this one's allocator keeps. What is in a
    cycle, as an exception and the frames that it passed are, goes first."""
    if device == "cuda":
        import torch

        gc.collect()
        torch.cuda.empty_cache()


def _visible_device() -> str | None:
    """The first entry of CUDA_VISIBLE_DEVICES ("0" where unset), None where it hides every GPU."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return "0"
    first = listed.split(",")[0].strip()
    return None if first in ("", "-1") else first


def _ask_nvml(ask: Callable[[Handle], Answer]) -> Answer | None:
    """What `ask` says of the first visible GPU; None where NVML or the GPU does not answer."""
    selected = _visible_device()
    if selected is None:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return ask(
            pynvml.nvmlDeviceGetHandleByIndex(int(selected))
            if selected.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(selected)
        )
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _from_nvml(handle: Handle) -> LocalGpu:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return LocalGpu(
        index=0,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        arch=f"{major}{minor}",
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        max_sm_clock_mhz=_query("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
        max_memory_clock_mhz=_query("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_MEM),
        memory_bus_bits=_query("nvmlDeviceGetMemoryBusWidth", handle),
        power_limit_w=_milli(_query("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        source="NVML",
    )


def _query(function: str, *arguments: object) -> int | None:
    """One optional NVML figure; None where this GPU or driver does not give it."""
    try:
        return int(getattr(pynvml, function)(*arguments))
    except (pynvml.NVMLError, AttributeError):
        return None


def _milli(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _from_runtime() -> LocalGpu | None:
    if not (os.path.exists("/dev/kfd") or os.path.exists("/dev/nvidiactl")):
        return None
    found = device_properties()
    if found is None:
        return None
    return LocalGpu(
        index=0,
        name=found.name,
        arch=found.arch,
        memory_bytes=found.total_memory,
        driver="unknown",
        max_sm_clock_mhz=found.clock_khz // 1000 or None,
        max_memory_clock_mhz=found.memory_clock_khz // 1000 or None,
        memory_bus_bits=found.memory_bus_bits or None,
        power_limit_w=None,
        source="torch.cuda.get_device_properties",
    )
