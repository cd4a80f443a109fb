"""Is a torch that the chosen interpreter already has used as it is?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "make_venv.py"
NOWHERE = "torch==0.0.0"
"""Installing it would fail."""


@pytest.mark.slow
def test_the_own_torch_is_shared_and_pinned(tmp_path: Path) -> None:
    target = tmp_path / "venv"
    made = subprocess.run(
        [sys.executable, str(SCRIPT), str(target), NOWHERE], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert "is used as it is" in made.stdout
    own = importlib.metadata.version("torch")
    assert (target / "torch-constraint.txt").read_text() == f"torch=={own}\n"
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    code = "import importlib.util as u, sys; print(u.find_spec('torch').origin, sys.prefix)"
    inner = [str(target / "bin" / "python"), "-I", "-c", code]
    origin, prefix = subprocess.run(inner, capture_output=True, text=True).stdout.split()
    assert (origin, prefix) == (spec.origin, str(target))


@pytest.fixture
def torch_here() -> Callable[[], str | None]:
    spec = importlib.util.spec_from_file_location("make_venv", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], str | None] = module.torch_here
    return found


@pytest.mark.parametrize(
    ("version", "used"), [("2.10.0", False), ("2.11.0+cu130", True), ("3.0.1", True)]
)
def test_an_old_torch_is_left_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    torch_here: Callable[[], str | None],
    version: str,
    used: bool,
) -> None:
    facts = tmp_path / f"torch-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert torch_here() == (version if used else None)
