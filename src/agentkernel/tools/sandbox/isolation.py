"""Isolation tiers of a worker, its environment and its limits.

Which tiers this machine can build is tried once, never guessed. A worker sees the listed
environment variables and no others.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

from agentkernel.domain.errors import SandboxUnavailable
from agentkernel.tools.sandbox.launcher import SETTINGS


@dataclass(frozen=True)
class Limits:
    """Bounds of one worker and of all that it starts, together. `memory_bytes` is memory that is
    no file's on a disk, what the parent shares left out; the launcher watches it (address space is
    not limited: CUDA reserves terabytes of it). `output_bytes` bounds what is printed in all,
    `log_bytes` what of it is kept."""

    memory_bytes: int = 12 << 30
    scratch_bytes: int = 2 << 30
    file_bytes: int = 2 << 30
    open_files: int = 4096
    processes: int = 64
    tasks: int = 1024
    log_bytes: int = 64 << 10
    output_bytes: int = 64 << 20
    reply_bytes: int = 16 << 20
    start_timeout_s: float = 120.0
    threads: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))


PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
SEARCH_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def worker_environment(
    scratch: Path, device: Literal["cpu", "cuda"], interpret: bool, threads: int
) -> dict[str, str]:
    """Names and values; caches and temporary files all lie in `scratch`."""
    if interpret:
        threads = 1  # many small products: waiting threads cost more than they bring
    values = {
        "PATH": SEARCH_PATH,
        "LANG": "C.UTF-8",
        "TMPDIR": f"{scratch}/tmp",
        "TRITON_HOME": str(scratch),
        "TRITON_CACHE_DIR": f"{scratch}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        "CUDA_CACHE_PATH": f"{scratch}/cuda",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    if device == "cuda" and "CUDA_VISIBLE_DEVICES" not in os.environ:
        del values["CUDA_VISIBLE_DEVICES"]
    if device == "cpu":
        values["CUDA_VISIBLE_DEVICES"] = ""
    if interpret:
        values["TRITON_INTERPRET"] = "1"
    return values | {key: os.environ[key] for key in PASSED_ON if key in os.environ}


Tier = Literal["bubblewrap", "namespaces", "landlock", "none"]
LAUNCHER = Path(__file__).with_name("launcher.py")
SERVER = Path(__file__).with_name("fork_loop.py")
PYTHON = (sys.executable, "-I", "-B")
HIDDEN = ("/tmp", "/var/tmp", "/root", "/home", "/run", "/media", "/mnt", "/srv")
NEEDED = ("agentkernel", "pydantic", "torch", "triton", "numpy")
PROBE_TIMEOUT_S = 20.0
SMALL_MOUNT_BYTES = 64 << 20
SCRATCH_SLACK_BYTES = 64 << 20
"""The scratch's file system holds this more than a candidate may use: its bound has a name."""


@dataclass(frozen=True)
class Isolation:
    """A tier that works here. `user_namespace` says which form of unshare does; `late` that
    Landlock closes only once CUDA has started; `forked` that workers come from a fork server, which
    is inside bubblewrap where that is the tier, each in namespaces of its own."""

    tier: Tier
    user_namespace: bool = True
    late: bool = False
    forked: bool = False


_cuda_alone, _cuda_first = threading.Event(), threading.Event()
"""Set once CUDA was found not to start in a fork of a process with torch here; behind Landlock."""


def find_isolation(
    *, cuda: bool, wanted: Tier | None = None, allow_unsandboxed: bool = False
) -> Isolation:
    """The strongest tier that works. Raises SandboxUnavailable with each tier's own reason."""
    if wanted == "none" or (allow_unsandboxed and wanted is None and not _any(cuda)):
        if not allow_unsandboxed:
            raise SandboxUnavailable("Tier 'none' needs allow_unsandboxed.")
        return Isolation("none")
    reasons = []
    for isolation in _candidates(wanted):
        reason = probe(isolation, cuda)
        if reason is None:
            late = cuda and (
                _cuda_first.is_set() or bool(effective_locks(isolation, cuda).get("cuda"))
            )
            return replace(isolation, late=late, forked=_can_fork(isolation, cuda))
        reasons.append(f"{isolation.tier}: {reason}")
    raise SandboxUnavailable(
        f"Nothing here can isolate a candidate ({'; '.join(reasons)}). Expected bubblewrap, "
        "Linux namespaces or Landlock. Next: apt-get install bubblewrap, or allow it with "
        "--allow-unsandboxed."
    )


def weaken_isolation() -> bool:
    """A worker with a GPU did not start: ask for less from now on. False where nothing is left to
    concede."""
    for event in (_cuda_alone, _cuda_first):
        if not event.is_set():
            event.set()
            return True
    return False


def _can_fork(isolation: Isolation, cuda: bool) -> bool:
    if cuda and _cuda_alone.is_set():
        return False
    return probe(replace(isolation, forked=True), cuda) is None


def _any(cuda: bool) -> bool:
    return any(probe(isolation, cuda) is None for isolation in _candidates(None))


def _candidates(wanted: Tier | None) -> tuple[Isolation, ...]:
    every = (
        Isolation("bubblewrap"),
        Isolation("namespaces"),
        Isolation("namespaces", user_namespace=False),
        Isolation("landlock"),
    )
    return tuple(isolation for isolation in every if wanted in (None, isolation.tier))


def probe(isolation: Isolation, cuda: bool) -> str | None:
    """Try `isolation` on an empty process: None where they hold, else why not."""
    found = _try(isolation, cuda)
    return found if isinstance(found, str) else None


def effective_locks(isolation: Isolation, cuda: bool) -> dict[str, object]:
    """What a process behind `isolation` could lock behind itself, and what CUDA said to that (an
    error code, 0 where it started)."""
    found = _try(isolation, cuda)
    return {} if isinstance(found, str) else dict(found)


@functools.cache
def _try(isolation: Isolation, cuda: bool) -> dict[str, object] | str:
    if isolation.tier == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    with tempfile.TemporaryDirectory(prefix="agentkernel-probe-") as folder:
        config = base_config(isolation, Path(folder).resolve(), cuda, Limits()) | {"probe": True}
        try:
            done = subprocess.run(
                command(isolation, config),
                env={"PATH": SEARCH_PATH}
                | {key: os.environ[key] for key in PASSED_ON if key in os.environ},
                capture_output=True,
                text=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    lines = done.stderr.strip().splitlines()
    if done.returncode != 0:
        return lines[-1] if lines else f"exit {done.returncode}"
    return cast("dict[str, object]", json.loads(done.stdout.splitlines()[-1]))


def base_config(
    isolation: Isolation, folder: Path, cuda: bool, limits: Limits
) -> dict[str, object]:
    """What the launcher needs to know in every tier. `folder` gets `scratch` and `stage`."""
    scratch, stage = folder / "scratch", folder / "stage"
    for path in (scratch, stage):
        path.mkdir(exist_ok=True)
    nested = isolation.tier == "bubblewrap" and isolation.forked
    own = nested or (isolation.tier == "namespaces" and isolation.user_namespace)
    return {
        "tier": isolation.tier,
        "enters": "user" if own else "plain" if isolation.tier == "namespaces" else "",
        "late": isolation.late,
        "cuda": cuda,
        "scratch": str(scratch),
        "stage": "/dev/shm" if nested else str(stage),
        "hidden": hidden_folders(),
        "visible": visible_folders(),
        "devices": device_names() if cuda else [],
        "paths": import_paths(),
        "scratch_mount_bytes": limits.scratch_bytes + SCRATCH_SLACK_BYTES,
        "file_bytes": limits.file_bytes,
        "open_files": limits.open_files,
        "bounds": {
            "processes": limits.processes,
            "tasks": limits.tasks,
            "memory_bytes": limits.memory_bytes,
            "scratch_bytes": limits.scratch_bytes,
        },
    }


def command(isolation: Isolation, config: dict[str, object]) -> list[str]:
    """The command line of the launcher inside `isolation`. Start it with the worker's environment,
    not the parent's: the outermost process's variables can be read from inside through /proc."""
    launch = [*PYTHON, str(LAUNCHER), json.dumps(config)]
    if isolation.tier != "bubblewrap":
        return launch
    around = _outer(cuda=bool(config["cuda"])) if isolation.forked else _bubblewrap(config)
    return [*around, *launch]


def server_command(isolation: Isolation, words: str, *, cuda: bool) -> list[str]:
    """The command line of a fork server for workers inside `isolation`."""
    around = _outer(cuda=cuda) if isolation.tier == "bubblewrap" else []
    return [*around, *PYTHON, str(SERVER), words]


def _bubblewrap(config: dict[str, object]) -> list[str]:
    """All walls of one worker."""
    # As the first of its PID namespace the launcher takes all with it, however it ends.
    words = ["bwrap", "--unshare-all", "--as-pid-1", *_root(), "--proc", "/proc"]
    for path in SETTINGS:
        words += ["--ro-bind-try", path, path]
    words += _disk()
    words += _devices() if config["cuda"] else []
    scratch = str(config["scratch"])
    if _takes_sizes():
        words += ["--size", str(config["scratch_mount_bytes"]), "--tmpfs", scratch]
    else:
        words += ["--bind", scratch, scratch]
    return [*words, "--remount-ro", "/", "--chdir", scratch, "--"]


def _outer(*, cuda: bool) -> list[str]:
    """The walls around a fork server. /proc is the machine's, since only where that is seen whole
    may those inside mount one of their own; to be user 0 in there takes CAP_SETFCAP here."""
    words = ["bwrap", "--unshare-user-try", "--unshare-ipc", "--unshare-net", "--unshare-uts"]
    words += ["--unshare-cgroup-try", *_root(), "--cap-add", "CAP_SETFCAP"]
    words += [*_disk(), *(_devices() if cuda else [])]
    return [*words, "--bind", "/proc", "/proc", "--chdir", "/", "--"]


def _devices() -> list[str]:
    return [word for name in device_names() for word in ("--dev-bind", *[f"/dev/{name}"] * 2)]


def _root() -> list[str]:
    return ["--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev"]


def _disk() -> list[str]:
    """Hidden folders empty, and what Python needs of them."""
    words: list[str] = []
    small = ["--size", str(SMALL_MOUNT_BYTES)] if _takes_sizes() else []
    for folder in ["/dev/shm", *hidden_folders()]:
        words += [*small, "--tmpfs", folder]
    for path in visible_folders():
        words += ["--ro-bind", path, path]
    return words


@functools.cache
def _takes_sizes() -> bool:
    """True where this bubblewrap bounds a tmpfs (from 0.7 on)."""
    done = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return "--size" in done.stdout + done.stderr


def hidden_folders() -> list[str]:
    """Folders that hold people's files, secrets or other processes' sockets, and exist here."""
    home = os.path.expanduser("~")
    folders = {*HIDDEN, home if home != "/" else "/root"}
    kept = sorted(item for item in folders if os.path.isdir(item) and not os.path.islink(item))
    return [item for item in kept if not any(item.startswith(f"{other}/") for other in kept)]


def visible_folders() -> list[str]:
    """What Python and the packages need from below a hidden folder, outermost ones only."""
    hidden = hidden_folders()
    needed = {os.path.realpath(sys.base_prefix), sys.prefix, str(LAUNCHER.parent)}
    needed |= {os.path.dirname(os.path.realpath(sys.executable)), *import_paths()}
    needed |= {os.path.realpath(path) for path in needed}
    below = sorted(path for path in needed if any(path.startswith(f"{item}/") for item in hidden))
    return [path for path in below if not any(path.startswith(f"{top}/") for top in below)]


def import_paths() -> list[str]:
    """Entries of sys.path that hold installed packages or agentkernel itself, in order."""
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    found = []
    for entry in sys.path:
        packages = entry.endswith(("site-packages", "dist-packages")) or entry in installed
        if entry and os.path.isdir(entry) and (packages or _holds_needed(entry)):
            found.append(os.path.abspath(entry))
    return list(dict.fromkeys(found))


def _holds_needed(entry: str) -> bool:
    return any(os.path.isfile(os.path.join(entry, name, "__init__.py")) for name in NEEDED)


def device_names() -> list[str]:
    """NVIDIA's device nodes below /dev."""
    return [os.path.basename(path) for path in sorted(glob.glob("/dev/nvidia*"))]
