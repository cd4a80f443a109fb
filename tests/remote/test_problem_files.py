"""What a problem imports goes along, and the problem is the same one elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import ProblemError, SettingError
from agentkernel.remote.problem_files import files_of, restored
from agentkernel.remote.session_folder import SessionFolder
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module

MODEL = """
import torch
from torch import nn
{imports}

class Model(nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.randn(4, 4)]
"""


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What is imported for one problem is not there for the next one."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def moved(loaded: LoadedProblem, source: Path, there: Path) -> LoadedProblem:
    """The problem on another machine, where `source` is not."""
    files = files_of(loaded.problem)
    write(there, files)
    source.rename(source.with_name("gone"))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pack", "near", "far")]:
        del sys.modules[name]
    return restored(loaded.problem, there)


def test_neighbours_and_what_they_import(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(
        here,
        {
            "model.py": MODEL.format(imports="from near import twice", result="twice(x)"),
            "near/__init__.py": "from .inner import twice\n",
            "near/inner.py": "\ufeffimport far\ndef twice(x):\r\n    return far.TWO * x\n",
            "far.py": "TWO = 2.0\n",
            "unasked.py": "raise AssertionError\n",
        },
    )
    loaded = load_problem(str(here / "model.py"))
    assert sorted(files_of(loaded.problem)) == [
        "far.py", "model.py", "near/__init__.py", "near/inner.py",
    ]  # fmt: skip
    again = moved(loaded, here, there)
    assert again.problem.sha256 == loaded.problem.sha256
    x = torch.randn(4, 4)
    assert torch.equal(again.build(seed=0)(x), 2 * x)


def test_a_file_of_a_package(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(
        here,
        {
            "pack/__init__.py": "from .deep.model import Model\n",
            "pack/scale.py": "THREE = 3.0\n",
            "pack/deep/__init__.py": "",
            "pack/deep/model.py": MODEL.format(
                imports="from ..scale import THREE", result="THREE * x"
            ),
        },
    )
    loaded = load_problem(str(here / "pack" / "deep" / "model.py"))
    again = moved(loaded, here, there)
    assert again.problem.package is not None
    assert again.problem.package.root == str(there)
    assert again.problem.sha256 == loaded.problem.sha256
    x = torch.randn(4, 4)
    assert torch.equal(again.build(seed=0)(x), 3 * x)


def test_an_installed_class_is_sent_by_its_version() -> None:
    loaded = load_problem("torch.nn:ReLU", ["input=f32[4,4]"])
    assert files_of(loaded.problem) == {}
    again = restored(loaded.problem, Path("/nowhere"))
    assert again.problem.sha256 == loaded.problem.sha256
    assert type(again.build(seed=0)).__name__ == type(loaded.build(seed=0)).__name__


def test_a_live_module_is_not_sent() -> None:
    loaded = problem_from_module(nn.ReLU(), [torch.randn(4)])
    with pytest.raises(ProblemError, match="a pickle holds"):
        files_of(loaded.problem)


def test_a_neighbour_that_is_no_python_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": MODEL.format(imports="import near", result="x"), "near.py": ""})
    loaded = load_problem(str(tmp_path / "model.py"))
    (tmp_path / "near.py").write_text("def (:\n")
    with pytest.raises(ProblemError, match=r"near\.py line 1"):
        files_of(loaded.problem)


@pytest.mark.parametrize("name", ["../other.py", "/etc/other.py", "a/../../other.py"])
def test_no_file_of_a_subject_lands_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="leads elsewhere"):
        SessionFolder(tmp_path).add_files("0" * 64, {name: "x = 1\n"})
    assert not list(tmp_path.rglob("other.py"))
