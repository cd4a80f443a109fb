"""What does agentkernel need on a machine, and is it there?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sqlite3
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.errors import AgentKernelError

if TYPE_CHECKING:
    from agentkernel.domain.settings import Settings

DISK_NEEDED_GB = 2.0


@dataclass(frozen=True)
class Check:
    """One line of the screen. `required` says that no run works without it."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    required: bool = False

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def all_checks(settings: Settings) -> tuple[Check, ...]:
    """Every check of the machine, in the order of the screen."""
    return (
        check_python(),
        check_package("torch", "2.11", "pip install torch==2.13.0"),
        check_package("triton", "3.6", "pip install triton"),
        check_bytecode("torch"),
        check_gpu(),
        check_sandbox(settings),
        check_binary("cuobjdump"),
        check_binary("ptxas"),
        check_index(settings),
        check_disk(Path(settings.runs)),
    )


def check_python() -> Check:
    """Python 3.11 or newer."""
    found = f"{platform.python_version()} ({sys.executable})"
    return Check("python", sys.version_info >= (3, 11), found, required=True)


def check_package(name: str, oldest: str, mend: str) -> Check:
    """An installed distribution, not imported."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "not installed", mend, required=True)
    new_enough = _numbers(version) >= _numbers(oldest)
    return Check(name, new_enough, version, "" if new_enough else mend, required=True)


def check_bytecode(name: str) -> Check:
    """Whether a package's modules lie there compiled. Images that are built without bytecode, and
    never write any, make each process that imports torch compile thousands of files."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return Check("bytecode", False, f"{name} is not installed")
    if Path(importlib.util.cache_from_source(spec.origin)).is_file():
        return Check("bytecode", True, f"{name} is compiled")
    folder = Path(spec.origin).parent.parent
    found = f"{name} is not: each process compiles it anew, for seconds"
    return Check("bytecode", False, found, f"{sys.executable} -m compileall -q -j 0 {folder}")


def check_gpu() -> Check:
    """The GPU and its driver; without one, runs are interpreted and estimated."""
    from agentkernel.runtime.devices import local_gpu

    gpu = local_gpu()
    if gpu is None:
        return Check(
            "GPU",
            False,
            "none: verdicts are interpreted, times estimated",
            "nvidia-smi must list a GPU",
        )
    return Check("GPU", True, f"{gpu.name}, driver {gpu.driver}")


def check_sandbox(settings: Settings) -> Check:
    """The strongest wall between a candidate and this machine."""
    from agentkernel.tools.sandbox.tiers import find_isolation

    mend = "apt-get install bubblewrap"
    try:
        walls = find_isolation(cuda=False, allow_unsandboxed=settings.judge.allow_unsandboxed)
    except AgentKernelError as error:
        return Check("sandbox", False, str(error), mend, required=True)
    weak = walls.tier != "bubblewrap"
    return Check("sandbox", True, walls.tier, mend if weak else "", required=True)


def check_binary(name: str) -> Check:
    """A tool that comes with Triton: registers and spills are read with it."""
    path = _triton_binary(name)
    if path is None:
        return Check(name, False, "not found", "pip install --force-reinstall triton", True)
    return Check(name, True, str(path), required=True)


def check_index(settings: Settings) -> Check:
    """The knowledge index; it is built on first use and can be rebuilt at any time."""
    from agentkernel.knowledge.truth import folder_of

    folder = folder_of(settings.knowledge.index)
    files = sorted(folder.rglob("chroma.sqlite3")) if folder.is_dir() else []
    if not files:
        return Check("index", True, f"not built yet; made on first use in {folder}")
    try:
        with sqlite3.connect(f"file:{files[-1]}?mode=ro", uri=True) as database:
            count = database.execute("select count(*) from embeddings").fetchone()[0]
    except sqlite3.Error as error:
        return Check("index", False, f"{folder}: {error}", "rebuilt by itself on the next run")
    return Check("index", True, f"{count} documents in {folder}")


def check_disk(runs: Path) -> Check:
    """Space where the run folders go."""
    place = runs.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    writable = os.access(place, os.W_OK)
    ok = free >= DISK_NEEDED_GB and writable
    found = f"{free:.0f} GB free in {place}" if writable else f"{place} cannot be written"
    return Check("disk", ok, found, "" if ok else "name another folder with --runs", True)


def _triton_binary(name: str) -> Path | None:
    try:
        files = importlib.metadata.files("triton") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(item.locate())) for item in files if item.name == name]
    if found and os.access(found[0], os.X_OK):
        return found[0]
    elsewhere = shutil.which(name)
    return Path(elsewhere) if elsewhere else None


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit())
