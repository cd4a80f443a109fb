"""Does the wheel work by itself, in an environment that has never seen the checkout?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORT_ALL = """
import importlib, pkgutil, sys
import agentkernel
names = [agentkernel.__name__]
def broken(name):
    raise ImportError(name)
for found in pkgutil.walk_packages(agentkernel.__path__, "agentkernel.", onerror=broken):
    if ".knowledge.kernels." in found.name or found.name.endswith("__main__"):
        continue
    importlib.import_module(found.name)
    names.append(found.name)
print(agentkernel.__file__)
print(len(names))
"""


MOST_BYTES = 10 * 10**6
NEVER = "python_version < '3'"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel_python(wheel: Path) -> Path:
    """A new environment with the wheel; the dependencies come from this one's site-packages."""
    folder = wheel.parent
    venv.EnvBuilder(with_pip=True).create(folder / "env")
    python = folder / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    share_dependencies(python)
    return python


def share_dependencies(python: Path) -> None:
    """Link this environment's packages, all but agentkernel and what leads to a checkout."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    target = Path(done.stdout.strip())
    for folder in dependency_folders():
        for item in folder.iterdir():
            link = target / item.name
            ours = "agentkernel" in item.name or item.suffix == ".pth"
            if not ours and not os.path.lexists(link):
                link.symlink_to(item)


def dependency_folders() -> list[Path]:
    """Where this environment's packages lie: its own folder first, then shared ones."""
    own = Path(sysconfig.get_path("purelib"))
    others = [Path(item) for item in sys.path if item.endswith(("site-packages", "dist-packages"))]
    return [own, *(item for item in others if item != own and item.is_dir())]


def run(python: Path, *words: str, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_targets_come_with_it(wheel_python: Path, tmp_path: Path) -> None:
    shown = run(wheel_python, "-m", "agentkernel", "targets", "--json", cwd=tmp_path)
    assert "h100-sxm" in [target["name"] for target in json.loads(shown)]


@pytest.mark.slow
def test_every_module_imports(wheel_python: Path, tmp_path: Path) -> None:
    where, count = run(wheel_python, "-c", IMPORT_ALL, cwd=tmp_path).splitlines()[-2:]
    assert Path(where).is_relative_to(wheel_python.parents[1])
    assert int(count) > 50


def test_the_data_files_are_in_it(wheel_python: Path) -> None:
    (package,) = (wheel_python.parents[1] / "lib").glob("python*/site-packages/agentkernel")
    source = ROOT / "src" / "agentkernel"
    wanted = {
        path.relative_to(source)
        for path in source.rglob("*")
        if path.is_file()
        and path.suffix in (".yaml", ".j2", ".md", ".json", ".safetensors", ".txt")
    }
    assert wanted
    assert {path for path in wanted if not (package / path).is_file()} == set()


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES


def test_uvx_runs_the_command_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Without the network: the dependencies are left out of what uv resolves, and found in this
    environment."""
    uv = pytest.importorskip("uv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^\w-]", item)[0] for item in project["dependencies"]]
    left_out = tmp_path / "left_out.txt"
    left_out.write_text("".join(f"{name} ; {NEVER}\n" for name in names))
    command = [uv.find_uv_bin(), "tool", "run", "--offline", "--python", sys.executable]
    command += ["--overrides", str(left_out), "--from", str(wheel), "agentkernel", "--help"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, dependency_folders())),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "optimize   Make a module faster." in done.stdout
