"""GPUs of this machine, the devices that a benchmark holds, and the installed versions.

NVML is asked first, since it answers without starting CUDA.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, TypeVar

import pynvml

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import SettingError
from agentkernel.storage.files import explain_write_failure, make_folder, open_append
from agentkernel.version import __version__

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


CPU = "cpu"
MOST_WORKERS = 5
CPUS_PER_WORKER = 3
"""A problem keeps about so many cores busy while it compiles."""


def visible_devices() -> tuple[str, ...]:
    """The GPUs that a process here may use, as CUDA_VISIBLE_DEVICES would name them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if local_gpu() is None:
        return ()
    if listed is not None:
        return tuple(item.strip() for item in listed.split(",") if item.strip())
    return tuple(str(index) for index in range(_gpu_count()))


def parse_devices(text: str | None, visible: tuple[str, ...]) -> tuple[str, ...]:
    """`0,2` -> the first and third visible GPU; None: the first, else the CPU. `cpu,cpu` is two
    processes without a GPU. Raises SettingError."""
    if text is None:
        return visible[:1] or (CPU,)
    words = [word.strip() for word in text.split(",")]
    if all(word == CPU for word in words):
        return tuple(words)
    known = [str(index) for index in range(len(visible))]
    for word in words:
        if word not in known:
            raise SettingError(
                f"Unknown device {word!r} in --devices {text!r}. Known here: "
                f"{', '.join([*known, CPU])}. Next: name some of them, or leave --devices out."
            )
    if len(set(words)) < len(words):
        raise SettingError(
            f"--devices {text!r} names a GPU twice. Expected each once: nothing else may run on a "
            "GPU that times."
        )
    return tuple(visible[int(word)] for word in words)


def default_workers(devices: Sequence[str], cpus: int) -> int:
    """How many problems a device works on at a time: one on the CPU, on a GPU as many as its share
    of the cores feeds, five at most."""
    gpus = sum(device != CPU for device in devices)
    return 1 if gpus == 0 else max(1, min(MOST_WORKERS, cpus // (CPUS_PER_WORKER * gpus)))


@contextmanager
def hold_devices(folder: Path, devices: Sequence[str]) -> Iterator[None]:
    """Hold the GPUs among `devices` against other benches of this machine; waits for one that has
    some of them, and for the lanes of one that was killed."""
    with ExitStack() as held:
        # Always in the same order: two benches that want two GPUs each must not wait forever.
        for device in sorted({device for device in devices if device != CPU}):
            file = held.enter_context(_opened(folder, device, "lock"))
            fcntl.flock(file, fcntl.LOCK_EX)
            with _opened(folder, device, "lanes") as lanes:
                fcntl.flock(lanes, fcntl.LOCK_EX)
        yield


@contextmanager
def join_devices(folder: Path, device: str) -> Iterator[None]:
    """Be one of the lanes of the bench that holds `device`: the next bench waits for all of them,
    also where this one was killed and the system has not ended them yet."""
    if device == CPU:
        yield
        return
    with _opened(folder, device, "lanes") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def _opened(folder: Path, device: str, suffix: str) -> Iterator[IO[bytes]]:
    make_folder(folder)
    path = folder / f"gpu-{device.replace('/', '_')}.{suffix}"
    with explain_write_failure(path):
        file = open_append(path)
    with file:
        yield file


def _gpu_count() -> int:
    """What NVML counts; 1 where it is silent and a GPU is there all the same."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 1
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def installed_versions() -> Versions:
    """Versions of this package, Python, torch, triton, CUDA and the driver (None where absent)."""
    return Versions(
        agentkernel=__version__,
        python=platform.python_version(),
        torch=_version("torch"),
        triton=_version("triton"),
        platform=platform.platform(),
        cuda=_torch_cuda(),
        driver=_driver(),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _torch_cuda() -> str | None:
    try:
        import torch.version
    except ImportError:
        return None
    return torch.version.cuda


def _driver() -> str | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        found = pynvml.nvmlSystemGetDriverVersion()
        return found.decode() if isinstance(found, bytes) else str(found)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
