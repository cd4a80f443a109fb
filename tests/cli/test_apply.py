"""`agentkernel apply` puts a run's kernel into a model's file and says whether its outputs hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentkernel.cli.apply import AppliedCheck, ProblemModel, check_lines
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.run_store import find_kernel_run, passed_over
from tests.swap.applied_kernels import WRONG, example, norm_kernel
from tests.swap.test_found import write_run
from tests.swap.test_free_sizes import judged_norm

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LayerNorm({width})
        self.second = nn.LayerNorm({width})

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn({rows}, {width})]


def get_init_inputs():
    return []
"""


def apply(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own: it makes Triton an interpreter."""
    command = [sys.executable, "-m", "agentkernel", "apply", *words]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The folder of a run that handed a wrong kernel over."""
    folder = tmp_path / "run-1"
    folder.mkdir()
    write_run(folder, norm_kernel(WRONG))
    (folder / "run.json").write_text("{}")
    return folder


def test_a_wrong_kernel_is_in_place_and_rejected(tmp_path: Path, run_folder: Path) -> None:
    rows, width = example().shape
    (tmp_path / "model.py").write_text(MODEL.format(rows=rows, width=width))
    done = apply(tmp_path, "model.py", "--run", str(run_folder), "--json")
    assert done.returncode == 3, done.stderr
    found = AppliedCheck.model_validate(json.loads(done.stdout.splitlines()[-1]))
    assert not found.accepted
    assert set(found.paths) == {"first", "second"}
    assert found.error is not None
    assert found.eager_error is not None
    assert found.error > 10 * found.eager_error


def test_a_note_is_told_once(tmp_path: Path, run_folder: Path) -> None:
    rows, width = example().shape
    (tmp_path / "model.py").write_text(MODEL.format(rows=rows, width=width))
    write_run(run_folder, judged_norm())
    done = apply(tmp_path, "model.py", "--run", str(run_folder))
    said = done.stdout + done.stderr
    assert said.count("The kernels run at other sizes too") == 1, said


@pytest.mark.slow
def test_a_model_without_such_a_module_says_so(tmp_path: Path, run_folder: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL.format(rows=2, width=3))
    done = apply(tmp_path, "model.py", "--run", str(run_folder))
    assert done.returncode == 3, done.stderr
    assert "no module of the model computes what run run-1 verified" in done.stdout
    assert "next: 'agentkernel runs' lists the runs" in done.stdout


def test_what_holds_ends_with_the_line_for_a_program() -> None:
    found = AppliedCheck(
        accepted=True, reason="as near as eager", folder="runs/a", paths=("", "norm"), refused={}
    )
    assert check_lines(found)[0] == "in place at: the model itself, norm"
    assert check_lines(found)[-1] == "in your program: agentkernel.apply_all(model, 'runs/a')"
    figures = found.model_copy(update={"error": 3.0036671e-07, "eager_error": 2e-07})
    said = "error against fp64: 3.0e-07 with the kernel, 2.0e-07 without"
    assert said in check_lines(figures)
    wrong = found.model_copy(update={"accepted": False})
    assert not any("in your program" in line for line in check_lines(wrong))


def test_it_is_said_which_run_last_is_where_a_newer_one_has_no_drop_in(tmp_path: Path) -> None:
    for name, result in (
        ("norm-20261130-090000-aaaa", {"status": "verified", "candidate": "norm_optimized.py"}),
        ("norm-20261130-090100-bbbb", {"status": "failed"}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    folder = find_kernel_run(tmp_path, "last")
    assert folder.name == "norm-20261130-090000-aaaa"
    newer = passed_over(tmp_path, "last", folder)
    assert newer == "norm-20261130-090100-bbbb"
    assert passed_over(tmp_path, folder.name, folder) == ""
    assert passed_over(tmp_path, "last", tmp_path / newer) == ""
    found = AppliedCheck(
        accepted=True, reason="near", folder=str(folder), paths=("",), refused={}, newer=newer
    )
    said = f"run {folder.name}; {newer} is newer and has no drop-in"
    assert check_lines(found)[0] == said
    nowhere = found.model_copy(update={"paths": (), "accepted": False})
    assert check_lines(nowhere)[0] == said


def test_where_it_went_in_stands_first_and_modules_around_it_are_no_refusals() -> None:
    found = AppliedCheck(
        accepted=True,
        reason="as near as eager",
        folder="runs/a",
        paths=("blocks.0", "blocks.1"),
        refused={"": "another graph", "blocks": "another graph", "head": "eps is 1, not 2"},
    )
    lines = check_lines(found)
    assert lines[:2] == ["in place at: blocks.0, blocks.1", "refused at head: eps is 1, not 2"]
    assert not any("another graph" in line for line in lines)
    nowhere = found.model_copy(update={"paths": (), "accepted": False})
    assert check_lines(nowhere)[0] == "refused at the model itself: another graph"


def test_a_night_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text("{}")
    done = apply(tmp_path, "model.py", "--run", str(tmp_path))
    assert done.returncode == 2
    assert f"agentkernel.apply(model, {str(tmp_path)!r}, name=...)" in done.stderr


def test_a_model_is_called_as_its_forward_takes_its_arguments(tmp_path: Path) -> None:
    """A kernel that was put in sees what a program gives: a keyword is none by position."""
    (tmp_path / "gate.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Gate(nn.Module):\n"
        "    def forward(self, x, pair, *, scale=1.0):\n"
        "        return torch.relu(x * scale) + pair[0] - pair[1]\n\n"
        "def get_inputs():\n"
        "    return [torch.randn(3, 5), (torch.randn(5), torch.randn(5))]\n\n"
        "def get_kwargs():\n    return {'scale': 0.5}\n"
    )
    model = ProblemModel(load_problem(str(tmp_path / "gate.py:Gate")))
    call = model.make_call(seed=3)
    assert call.kwargs == {"scale": 0.5}
    assert [type(item) for item in call.args] == [torch.Tensor, tuple]
    module = model.build()
    assert "forward" not in vars(module)
    assert module(*call.args, **call.kwargs).shape == (3, 5)
