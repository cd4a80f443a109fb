"""`agentkernel doctor`: checks of the machine and of the packages, keys and weights of models.

Exits 4 where something that every run needs is missing.
"""

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

import typer
from rich.table import Table
from rich.text import Text

from agentkernel.agents.coder_factory import file_coder
from agentkernel.agents.models.chat import client_package
from agentkernel.agents.models.local_presets import PREFIX, parse_local
from agentkernel.agents.models.provider import ModelSpec, record_name
from agentkernel.agents.safe_text import url_without_credentials
from agentkernel.cli.configuration import named_models, settings_from
from agentkernel.cli.console import console
from agentkernel.cli.options import DoctorFlags, settings_of
from agentkernel.cli.terminal import print_json
from agentkernel.domain.errors import AgentKernelError
from agentkernel.knowledge.store import folder_of
from agentkernel.remote.address import Address, parse_address
from agentkernel.remote.ssh import inspect_machine, install_line
from agentkernel.runtime.machine import local_gpu
from agentkernel.tools.sandbox.isolation import find_isolation
from agentkernel.version import __version__

if TYPE_CHECKING:
    from agentkernel.domain.settings import Settings


def doctor(flags: DoctorFlags) -> None:
    """`agentkernel doctor`."""
    settings = settings_from(flags.settings, {**settings_of(flags), "remote": flags.remote})
    if settings.remote is not None:
        checks = remote_checks(parse_address(settings.remote))
    else:
        checks = (*all_checks(settings), *model_checks(settings))
    broken = any(check.required and not check.ok for check in checks)
    if flags.as_json:
        print_json({"ok": not broken, "checks": [check.as_dict() for check in checks]})
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for check in checks:
            state = "ok" if check.ok else "missing" if check.required else "absent"
            table.add_row(check.name, state, Text(check.found), Text(check.mend))
        console().print(table)
    raise typer.Exit(4 if broken else 0)


DISK_NEEDED_GB = 2.0
NO_GPU = "none: verdicts are interpreted, times estimated"


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
    gpu = local_gpu()
    if gpu is None:
        return Check(
            "GPU",
            False,
            NO_GPU,
            "nvidia-smi must list a GPU",
        )
    return Check("GPU", True, f"{gpu.name}, driver {gpu.driver}")


def check_sandbox(settings: Settings) -> Check:
    """The strongest wall between a candidate and this machine."""
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


def remote_checks(address: Address) -> tuple[Check, ...]:
    """What the other machine has. Raises RemoteUnavailable where it cannot be reached."""
    found = inspect_machine(address)
    python = f"{found.python} ({found.executable}) on {address.label}"
    install = "" if found.agentkernel == __version__ else install_line(address)
    own = f"{found.agentkernel or 'not installed'}; here {__version__}"
    return (
        Check("python", _numbers(found.python) >= (3, 11), python, required=True),
        Check("agentkernel", not install, own if install else __version__, install, required=True),
        _there("torch", found.torch, "2.11"),
        _there("triton", found.triton, "3.6"),
        Check("GPU", bool(found.gpu), found.gpu or NO_GPU),
        Check("sandbox", bool(found.sandbox), found.sandbox or "no bubblewrap: a weaker one"),
        Check(
            "disk", found.free_gb >= DISK_NEEDED_GB,
            f"{found.free_gb:.0f} GB free in {found.disk}", required=True,
        ),
    )  # fmt: skip


def _there(name: str, version: str, oldest: str) -> Check:
    new_enough = bool(version) and _numbers(version) >= _numbers(oldest)
    mend = "" if new_enough else f"{name} {oldest} or newer comes with agentkernel"
    return Check(name, new_enough, version or "not installed", mend, required=True)


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


KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
}
"""Provider -> the variable that its client reads."""
LOCAL_PACKAGES = ("transformers", "accelerate", "peft")
CHAT_PACKAGES = ("langchain-openai", "langchain-anthropic")
LOCAL_MEND = "pip install '.[local]' in the clone"


def model_checks(settings: Settings) -> tuple[Check, ...]:
    """Keys, the packages of both kinds of models, then each model that `settings` name, or the file
    that is the coder."""
    named = tuple(check_model(agent, spec, settings) for agent, spec in named_models(settings))
    given = (check_given(settings.coder),) if settings.coder.startswith("file:") else ()
    return (check_keys(), check_chat(), check_local(), *named, *given)


def check_given(spec: str) -> Check:
    """Whether the file of `file:PATH` can be read."""
    try:
        found = file_coder(spec)
    except AgentKernelError as error:
        return Check("coder", False, str(error), "name another file")
    return Check("coder", True, f"{found.name}, {len(found.source.splitlines())} lines")


def check_keys() -> Check:
    """Which chat models' keys are set; their values are never read further than that."""
    present = [name for name in KEYS.values() if os.environ.get(name)]
    found = ", ".join(present) or "none; only --coder chat:... needs one"
    return Check("keys", bool(present), found, "" if present else "export OPENAI_API_KEY=...")


def check_chat() -> Check:
    """The clients of chat models; one for each provider that is asked."""
    present = [f"{name} {version}" for name, version in _versions(CHAT_PACKAGES) if version]
    found = ", ".join(present) or "no client; only --coder chat:... needs one"
    mend = "" if present else "pip install '.[openai]' or '.[anthropic]' in the clone"
    return Check("chat models", bool(present), found, mend)


def check_local() -> Check:
    """The packages of models in this process."""
    versions = _versions(LOCAL_PACKAGES)
    lacking = [name for name, version in versions if not version]
    present = ", ".join(f"{name} {version}" for name, version in versions if version)
    if not lacking:
        return Check("local models", True, present)
    found = f"without {', '.join(lacking)}; only --coder local:... needs them"
    return Check("local models", False, found, LOCAL_MEND)


def check_model(agent: str, spec: str, settings: Settings) -> Check:
    """What the model `spec` of this agent needs. Nothing is asked of it or of the hub."""
    try:
        found = record_name(spec, settings.models.base_url)
    except AgentKernelError as error:
        return Check(agent, False, str(error), "see docs/models.md")
    return _check_here(agent, spec) if spec.startswith(PREFIX) else _check_there(agent, found)


def _check_there(agent: str, found: ModelSpec) -> Check:
    """A client for the provider, and its key unless the endpoint is one's own."""
    provider = found.name.removeprefix("chat:").partition(":")[0]
    package = client_package(found.name)
    if not _version(package):
        return Check(agent, False, f"{found.name} needs {package}", f"pip install {package}")
    if found.base_url is not None:
        return Check(
            agent, True, f"{found.name} at {url_without_credentials(found.base_url)}, no key needed"
        )
    key = KEYS.get(provider)
    if key is not None and not os.environ.get(key):
        return Check(agent, False, f"{found.name} needs {key}", f"export {key}=...")
    return Check(agent, True, f"{found.name}, with {key}" if key else found.name)


def _check_here(agent: str, spec: str) -> Check:
    """The packages, and the folders that are named; a name on the hub is not looked up."""
    preset = parse_local(spec)
    wanted = ["transformers", "accelerate", *(["peft"] if preset.adapter else [])]
    wanted += ["bitsandbytes"] if preset.quantization == "4bit" else []
    lacking = [name for name, version in _versions(tuple(wanted)) if not version]
    if lacking:
        extra = " bitsandbytes" if "bitsandbytes" in lacking else ""
        return Check(agent, False, f"{spec} needs {', '.join(lacking)}", f"{LOCAL_MEND}{extra}")
    places = [name for name in (preset.model, preset.adapter) if name]
    away = [name for name in places if not any(Path(name).expanduser().glob("*.safetensors"))]
    wrong = [name for name in away if name.startswith(("/", ".", "~"))]
    if wrong:
        mend = "name the folder of the weights"
        return Check(agent, False, f"{spec}: no *.safetensors in {wrong[0]}", mend)
    if away:
        fetch = f"hf download {away[0]}"
        return Check(agent, True, f"{spec}: {', '.join(away)} from the hub or its cache", fetch)
    return Check(agent, True, f"{spec}: its weights are here")


def _versions(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, _version(name)) for name in names]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
