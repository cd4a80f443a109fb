"""What a fine-tuning reads and needs before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.conversation import write_turn
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import MissingDependency
from agentkernel.training import model
from agentkernel.training.settings import TrainingRow, load_training
from agentkernel.training.sft.examples import read_sft_rows
from agentkernel.training.sft.train import HeldOutJudging, with_target
from tests.training.training_rows import make_row, problem, write_rows

HELD_OUT = problem(90)  # x + 92.0
LINES = "\n".join(f"        x = torch.relu(x) * {number}.0" for number in range(40))
LONG = problem(91).replace("        return", f"{LINES}\n        return")
NEAR = LONG.replace("x - 93.0", "torch.tanh(x)")


def older_row(number: int, text: str, structure: str) -> TrainingRow:
    turn = write_turn(text, "Model", "NVIDIA H100", "triton")
    return make_row(number, messages=(turn,), problem_sha256=sha256_text(text), structure=structure)


def test_older_rows_of_held_out_modules_and_their_like_are_left_out(tmp_path: Path) -> None:
    data = write_rows(
        tmp_path / "data",
        [make_row(number, structure="train") for number in range(4)],
        [make_row(95, split="held-out", structure="held out")],
    )
    place = data / "problems" / "held-out"
    place.mkdir(parents=True)
    (place / "m90.py").write_text(HELD_OUT)
    (place / "long.py").write_text(LONG)
    fine = older_row(50, problem(50), "mine")
    rows = [
        fine,
        older_row(40, HELD_OUT, "mine"),  # the very module
        older_row(44, problem(95), "mine"),  # that of a held-out row
        older_row(41, problem(41), "held out"),  # its structure is a held-out row's
        older_row(42, problem(42), "mine"),  # its text adds, as the held-out one
        older_row(43, NEAR, "mine"),  # nearly the text
    ]
    older = write_rows(tmp_path / "older", rows)
    said: list[str] = []
    found = read_sft_rows(data, older, load_training("tiny", ["sft.replay=0.9"]), said.append)
    assert found.learned[4:] == (fine,)
    assert found.replayed == 1
    assert said[0].startswith("5 of 6 older rows left out")
    assert len(said) == 2
    said.clear()
    assert read_sft_rows(data, None, load_training("tiny", ()), said.append).replayed == 0
    assert said == ["4 rows"]


def test_what_is_lacking_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*names: str) -> None:
        monkeypatch.setattr(model, "find_spec", lambda name: None if name in names else object())

    qlora = load_training("tiny", ["sft.method=qlora"]).sft
    lacks("trl")
    with pytest.raises(MissingDependency, match=r"pip install '.\[train\]'"):
        model.check_packages(load_training("tiny").sft)
    lacks()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(MissingDependency, match="a CUDA GPU"):
        model.check_packages(qlora)
    lacks("bitsandbytes")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(MissingDependency, match="bitsandbytes"):
        model.check_packages(qlora)


def test_the_judge_is_asked_for_the_gpu_of_the_rows(tmp_path: Path) -> None:
    rows = [make_row(0, target="l4")]
    place, said = write_rows(tmp_path, rows), list[str]()
    asked = load_training("tiny", ["sft.evaluate_problems=2"])
    assert with_target(None, place, asked, said.append) == HeldOutJudging("l4")
    assert with_target(HeldOutJudging("h100", 2), place, asked, said.append) == HeldOutJudging(
        "h100", 2
    )
    assert len(said) == 1
    nobody = load_training("tiny", ["sft.evaluate_problems=0"])
    assert with_target(None, place, nobody, said.append) is None
