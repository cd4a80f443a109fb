"""A command that is printed loads the same problem again, whatever shell it is pasted into."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agentkernel.tools.command_lines import on_problem, problem_words, resume
from agentkernel.tools.problem.loading import LoadedProblem, load_problem

SOURCE = """
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width=8, name="a b"):
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x, ids, state=None, *, alpha=1.0, mode="sum"):
        return x * self.w * alpha


Model = Cell


def get_inputs():
    return [torch.randn(4, 8), torch.zeros(4, dtype=torch.int64)]


def get_init_inputs():
    return []
"""
INPUTS = (
    "x=f32[4,8];bf16[2,8]", "ids=i64[4]<9", "state=({'h': f32[8]}, None, (f16[1],))",
    "alpha=0.5", "mode='a \"b\"'",
)  # fmt: skip


def loaded_again(words: list[str]) -> LoadedProblem:
    inputs = [words[at + 1] for at, word in enumerate(words) if word == "--input"]
    init = words[words.index("--init") + 1] if "--init" in words else ""
    return load_problem(words[0], inputs=inputs, init=init)


@pytest.mark.parametrize("place", [":Cell", "", ":Model"])
def test_the_words_of_a_problem_load_it_again(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my models" / "cell.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    inputs = INPUTS if place == ":Cell" else ()
    init = "8, name='a b'" if inputs else ""
    loaded = load_problem(f"{path}{place}", inputs=inputs, init=init)
    monkeypatch.chdir(tmp_path)
    command = on_problem("profile", loaded.problem, "--candidate", "fast.py")
    assert command is not None
    program, verb, *words, flag, candidate = shlex.split(command)
    assert (program, verb, flag, candidate) == ("agentkernel", "profile", "--candidate", "fast.py")
    assert words == problem_words(loaded.problem)
    assert words[0].startswith("my models/cell.py")
    again = loaded_again(words)
    assert again.problem.evolve(path="") == loaded.problem.evolve(path="")
    assert again.init_args == loaded.init_args
    assert again.init_kwargs == loaded.init_kwargs


def test_a_run_is_resumed_by_name_only_where_names_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resume(Path("agentkernel-runs/a-1")) == "agentkernel resume a-1"
    assert resume(tmp_path / "agentkernel-runs" / "a-1") == "agentkernel resume a-1"
    assert resume(tmp_path / "my runs" / "a-1") == "agentkernel resume 'my runs/a-1'"
    assert resume(Path("/else/a-1")) == "agentkernel resume /else/a-1"
