"""Name, licence, metadata and size of what is published, and how the texts say to install it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

from agentkernel.cli.command_table import COMMANDS

ROOT = Path(__file__).parents[1]
LARGEST = 10 * 2**20
NAME = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
FOREIGN = re.compile(r"pip3?\s+install\s+(?:-\S+\s+)*['\"]?agentkernel(?![-\w])")
"""The package of that name on PyPI is another project's."""
FOLDERS = ("src", "docs", "examples", "benchmarks", ".ci")
TEXTS = (".md", ".py", ".yml", ".yaml", ".toml", ".sh", ".j2", ".ipynb", ".txt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_no_text_installs_the_package_of_somebody_else() -> None:
    listed = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    every = [*ROOT.glob("*.md"), ROOT / "Makefile", *listed]
    texts = [path for path in every if path.is_file() and path.suffix in (*TEXTS, "")]
    assert len(texts) > 500
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts
        if (found := FOREIGN.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert wrong == []


@pytest.mark.parametrize("line", ["pip install agentkernel", "pip install -U 'agentkernel[mcp]'"])
def test_a_text_that_installs_it_is_found(line: str) -> None:
    assert FOREIGN.search(line)
    assert not FOREIGN.search(line.replace("agentkernel", NAME))
    assert not FOREIGN.search("pip install dist/agentkernel_triton-1.whl")


def test_the_wheel_is_small_and_carries_its_licence(wheel: Path) -> None:
    assert wheel.name.startswith("agentkernel_triton-")
    assert wheel.stat().st_size < LARGEST
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (file,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        (licence,) = (name for name in names if name.endswith("/licenses/LICENSE"))
        metadata = Parser().parsestr(opened.read(file).decode())
        text = opened.read(licence).decode()
    assert metadata["Name"] == NAME
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "agentkernel",
        "agentkernel_triton",
    }


def test_hooks_and_workflows_call_commands_that_there_are() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    job = yaml.safe_load((ROOT / "examples/ci/pull-request.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in job["jobs"]["night"]["steps"]]
    called = [line.split()[1] for line in [hook["entry"], *steps] if line.startswith("agentkernel")]
    assert called == ["judge", "batch"]
    assert set(called) <= {command.name for command in COMMANDS}
    (night,) = (line for line in steps if line.startswith("agentkernel"))
    help_text = subprocess.run(
        [sys.executable, "-m", "agentkernel", "batch", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert set(re.findall(r"--[a-z-]+", night)) <= set(re.findall(r"--[a-z-]+", help_text))
