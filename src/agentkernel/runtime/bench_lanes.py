"""On which devices does a bench work, with how many processes, and who has to stay away?"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from agentkernel.domain.errors import SettingError
from agentkernel.runtime.devices import local_gpu
from agentkernel.storage.atomic import explain_write_failure, make_folder
from agentkernel.storage.disk import open_append

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
