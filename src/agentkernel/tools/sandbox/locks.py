"""What does a worker lock behind itself before it loads a candidate? The files with Landlock, the
system calls with seccomp; see docs/sandbox.md for what each tier adds. Standard library only."""

from __future__ import annotations

import contextlib
import glob
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentkernel.tools.sandbox import landlock, seccomp
from agentkernel.tools.sandbox.landlock import FileRule

SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store",
)  # fmt: skip
SETTINGS = (
    "ld.so.cache", "ld.so.preload", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd", "group",
    "nsswitch.conf", "os-release", "alternatives", "mime.types",
)  # fmt: skip
MACHINE = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems",
    "/proc/devices", "/proc/loadavg", "/proc/uptime", "/proc/sys/kernel", "/proc/sys/vm",
    "/sys/devices/system", "/sys/kernel/mm", "/sys/fs/cgroup",
)  # fmt: skip
CUDA = (
    "/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/modules", "/proc/sys", "/sys",
    "/etc/nvidia", "/etc/vdpau_wrapper.cfg",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
PASSED_ON_PATHS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True)
class LockdownState:
    """What was locked. `landlock` is the ABI, 0 for none; `late`: only after CUDA's start, so that
    the driver's own threads lie outside of Landlock; `gate`: each new process is asked for."""

    landlock: int = 0
    seccomp: bool = False
    gate: bool = False
    late: bool = False


def file_rules(scratch: str, paths: Sequence[str], *, cuda: bool) -> list[FileRule]:
    """All that a worker may touch. Call it in the process that will be locked."""
    passed = [os.environ.get(name, "").split(":") for name in PASSED_ON_PATHS]
    runs = [*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), *paths]
    runs += [path for group in passed for path in group if path.startswith("/")]
    rules = [FileRule(path, "run") for path in dict.fromkeys(runs) if path not in ("", "/")]
    rules += [FileRule(f"/etc/{name}", "read") for name in SETTINGS]
    rules += [FileRule(path, "read") for path in (*MACHINE, *(CUDA if cuda else ()))]
    rules += [FileRule(f"/dev/{name}", "device") for name in DEVICES]
    # CUDA names its threads in /proc/self/task/N/comm and fails to start (304) where it cannot.
    rules += [FileRule("/proc/self", "names" if cuda else "read")]
    if cuda:
        rules += [FileRule(path, "device") for path in sorted(glob.glob("/dev/nvidia*"))]
    return [*rules, FileRule(scratch, "own")]


def lock_files(config: Mapping[str, object]) -> int:
    """Landlock by `config`; the ABI, or 0 where the tier can do without. Raises OSError."""
    if config["tier"] == "none":
        return 0
    needed = config["tier"] == "landlock"
    if landlock.landlock_abi() < landlock.OLDEST_ABI:
        if needed:
            raise OSError(
                f"Landlock's ABI is {landlock.landlock_abi()}, {landlock.OLDEST_ABI} is needed"
            )
        return 0
    paths = [str(path) for path in config["paths"]]  # type: ignore[attr-defined]
    # The folder of this process stays the one that the rule names only while something holds it.
    os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
    return landlock.restrict_files(
        file_rules(str(config["scratch"]), paths, cuda=bool(config["cuda"]))
    )


def lock_calls(
    config: Mapping[str, object], abi: int, listener_socket: socket.socket | None
) -> LockdownState:
    """seccomp by `config`, after Landlock. The gate's listener leaves through `listener_socket`,
    which is closed. Raises OSError where the tier cannot do without."""
    late = bool(config.get("late"))
    if config["tier"] == "none":
        _close(listener_socket)
        return LockdownState()
    wishes = seccomp.FilterOptions(
        shared_host=config["tier"] == "landlock",
        memory_files=bool(config["cuda"]),
        scoped=abi >= landlock.SIGNALS_ABI,
    )
    gate = _install_gate(listener_socket)
    try:
        seccomp.install_filter(seccomp.refusal_filter(wishes))
    except OSError:
        if config["tier"] == "landlock":
            raise
        return LockdownState(abi, late=late, gate=gate)
    return LockdownState(abi, seccomp=True, gate=gate, late=late)


def _install_gate(listener_socket: socket.socket | None) -> bool:
    """False where another listener, or an older kernel, stands in the way."""
    if listener_socket is None:
        return False
    listener = -1
    with listener_socket, contextlib.suppress(OSError):
        listener = seccomp.install_filter(seccomp.notification_filter(), listen=True)
        socket.send_fds(listener_socket, [b"L"], [listener])
    if listener >= 0:
        os.close(listener)
    return listener >= 0


def _close(listener_socket: socket.socket | None) -> None:
    if listener_socket is not None:
        listener_socket.close()
