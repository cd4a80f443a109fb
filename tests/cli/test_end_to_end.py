"""Do chat, batch and a chat model's drafts come to an end with real tools, on a small problem?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from tests.agents.models.chat_server import ChatServer
from tests.cli.commands import Cli

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)


def get_inputs():
    return [torch.randn(24, 40)]


def get_init_inputs():
    return []
"""
DROP_IN = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_shift_relu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = at < count
    x = tl.load(x_ptr + at, mask=keep, other=0.0)
    y = tl.maximum(x * 2.0 + 1.0, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + at, y, mask=keep)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 1024)
        scale_shift_relu[(blocks,)](x, y, x.numel(), BLOCK=1024, num_warps=4)
        return y
"""
WRONG = DROP_IN.replace("y = torch.empty_like(x)", "y = torch.empty_like(x).double()")
QUICK = ["-c", "judge.seeds=1", "--rounds", "1"]


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "scale.py"
    path.write_text(PROBLEM)
    return path


def last_object(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text.splitlines()[-1])
    return found


def test_judge_accepts_and_rejects(problem: Path, cli: Cli) -> None:
    candidate = problem.with_name("candidate.py")
    candidate.write_text(DROP_IN)
    words = ["judge", str(problem), "--candidate", str(candidate), "-c", "judge.seeds=1"]
    assert last_object(cli([*words, "--target", "h100", "--json"]).out)["accepted"] is True
    candidate.write_text(WRONG)
    assert last_object(cli([*words, "--target", "h100", "--json"], 3).out)["gate"] == "meta"


@pytest.mark.slow
def test_a_models_draft_is_mended_once(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[str | int] = [f"```python\n{WRONG}```", f"```python\n{DROP_IN}```"]
    with ChatServer(answers) as server:
        model = ["--coder", "chat:openai:scripted", "--base-url", server.url]
        words = ["optimize", str(problem), "--target", "h100", *model, *QUICK, "--json"]
        assert run(words) == 0
    found = last_object(capsys.readouterr().out)
    assert (found["status"], found["drafts"]) == ("verified", 2)
    assert (found["tokens"], found["cost_usd"], found["unpriced"]) == (240, None, 2)
    assert Path(str(found["candidate"])).read_text() == DROP_IN
    assert run([*words, "--replay", "last"]) == 0  # the server is gone
    again = last_object(capsys.readouterr().out)
    assert (again["candidate_sha256"], again["tokens"]) == (found["candidate_sha256"], 240)
    assert again["run"] != found["run"]
    assert (again["replayed"], found["replayed"]) == (True, False)


@pytest.mark.slow
def test_a_given_file_is_the_answer(problem: Path, cli: Cli) -> None:
    kernel = problem.with_name("kernel.py")
    kernel.write_text(DROP_IN)
    words = ["optimize", str(problem), "--target", "h100", "--coder", f"file:{kernel}", "--json"]
    found = last_object(cli([*words, *QUICK]).out)
    assert (found["status"], found["drafts"]) == ("verified", 1)
    assert Path(str(found["candidate"])).read_text() == DROP_IN


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("text", "hint"), [("no python (", "line 1"), ("class Other:\n    pass\n", "ModelNew")]
)
def test_a_given_file_that_is_no_drop_in(text: str, hint: str, problem: Path, cli: Cli) -> None:
    kernel = problem.with_name("kernel.py")
    kernel.write_text(text)
    words = ["optimize", str(problem), "--target", "h100", "--coder", f"file:{kernel}", "--json"]
    assert hint in str(last_object(cli([*words, *QUICK], 3).out)["reason"])


@pytest.mark.slow
def test_a_model_that_is_not_there(problem: Path, cli: Cli) -> None:
    coder = "chat:openai:m@http://127.0.0.1:9/v1"
    captured = cli(["optimize", str(problem), "--target", "h100", "--coder", coder], 4)
    assert captured.err.count("\n") == 1
    assert "does not answer" in captured.err


@pytest.mark.slow
def test_chat_from_a_pipe(problem: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    lines = iter(["go\n", "/diff\n", "keep it\n", "undo\n", "what is love\n", "/quit\n", "go\n"])
    monkeypatch.setattr(sys, "stdin", Piped(lines))
    shown = cli(["chat", str(problem), "--target", "h100", "-c", "judge.seeds=1"]).out
    assert "c1" in shown
    assert "+class ModelNew(nn.Module):" in shown
    assert "what is love" in shown
    assert problem.with_name("scale_optimized.py").is_file()


@pytest.mark.slow
def test_batch_with_a_broken_problem(problem: Path, cli: Cli) -> None:
    listed = problem.with_name("list.yaml")
    listed.write_text("target: h100\nproblems: [scale.py, missing.py]\n")
    words = ["batch", str(listed), "-c", "judge.seeds=1", "--json"]
    rows = last_object(cli(words, 1).out)["rows"]
    assert isinstance(rows, list)
    assert [row["status"] for row in rows] == ["verified", "failed"]
    assert last_object(cli(words, 1).out)["rows"] == rows


class Piped:
    """Standard input that is no terminal."""

    def __init__(self, lines: object) -> None:
        self.lines = lines

    def isatty(self) -> bool:
        return False

    def __iter__(self) -> object:
        return self.lines
