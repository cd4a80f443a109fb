"""On which devices does a bench work, and who else may not use them meanwhile?"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkernel.errors import SettingError
from agentkernel.tools.atomic import make_folder, saving
from agentkernel.tools.devices import local_gpu

CPU = "cpu"


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


@contextmanager
def exclusive(folder: Path, device: str) -> Iterator[None]:
    """Hold `device` against other benches of this machine; waits for one that has it."""
    if device == CPU:
        yield
        return
    make_folder(folder)
    path = folder / f"gpu-{device.replace('/', '_')}.lock"
    with saving(path):
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
