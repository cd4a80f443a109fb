"""Does a model practise on the training part alone?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import TrainingError
from agentkernel.domain.exchange import Message
from agentkernel.training.data.rows import chosen_at, module_in, training_problems
from agentkernel.training.settings import load_training
from agentkernel.training.sft.examples import read_sft_rows
from tests.training.rl.stand_in import make_modules
from tests.training.training_rows import make_row, problem, write_rows

LICENCES = ("Apache-2.0",)


def test_each_module_once_as_the_rows_ask_for_it(tmp_path: Path) -> None:
    data = make_modules(tmp_path / "data", 3)
    found = training_problems(data, LICENCES)
    assert {item.text for item in found} == {problem(number) for number in range(3)}
    assert [item.sha256 for item in found] == sorted(item.sha256 for item in found)
    assert all(item.text in item.task.text for item in found)


def test_what_fine_tuning_spares_is_what_practice_takes_and_nothing_else(tmp_path: Path) -> None:
    data = make_modules(tmp_path / "data", 40)
    every = {item.sha256 for item in training_problems(data, LICENCES)}
    spared = {item.sha256 for item in training_problems(data, LICENCES, 0.25)}
    said: list[str] = []
    settings = load_training("tiny", ["rl.spared=0.25"])
    learned = {
        row.problem_sha256 for row in read_sft_rows(data, data, settings, said.append).learned
    }
    assert 3 <= len(spared) <= 20
    assert spared | learned == every
    assert not spared & learned
    assert said[0] == f"{len(spared)} of 40 rows are left to practice (rl.spared)"
    with pytest.raises(TrainingError, match=r"rl\.spared=1e-09.*rl\.spared=0 takes all"):
        training_problems(data, LICENCES, 1e-9)


def test_a_held_out_module_is_refused_by_its_text(tmp_path: Path) -> None:
    data = make_modules(tmp_path / "data")
    (data / "problems" / "held-out" / "m1.py").write_text(problem(1))
    with pytest.raises(TrainingError, match="is held out"):
        training_problems(data, LICENCES)


def test_and_by_its_structure(tmp_path: Path) -> None:
    rows = [make_row(0, structure="a"), make_row(1, structure="b")]
    held_out = [make_row(90, split="held-out", structure="b")]
    with pytest.raises(TrainingError, match="built like one"):
        training_problems(write_rows(tmp_path, rows, held_out), LICENCES)


@pytest.mark.parametrize(
    "changes",
    [{"split": "held-out"}, {"label": "refused"}, {"licence": "GPL-3.0"}, {"kernel_sha256": "0"}],
)
def test_a_poisoned_row_ends_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = write_rows(tmp_path, [make_row(0), make_row(1, **changes)])
    with pytest.raises(TrainingError, match="may not be"):
        training_problems(data, LICENCES)


def test_another_text_than_the_row_says_is_refused(tmp_path: Path) -> None:
    turn = Message(role="user", text=make_row(1).messages[0].text)
    data = write_rows(tmp_path, [make_row(0, messages=(turn,))])
    with pytest.raises(TrainingError, match="does not hold its module"):
        training_problems(data, LICENCES)
    with pytest.raises(TrainingError, match="no module to practise"):
        training_problems(write_rows(tmp_path / "empty", []), LICENCES)


@pytest.mark.parametrize("text", ["a = 1\n", "a = 1", "\na = 1\n", "x = '''\n```\n'''\n"])
def test_a_fence_gives_the_text_back(text: str) -> None:
    from agentkernel.agents.prompts import fenced

    turn = f"Write.\n\n{fenced(text, 'python')}\n\nOne file."
    assert module_in(turn, sha256_text(text)) == text
    assert module_in(turn, sha256_text("b")) is None


def test_all_are_seen_before_any_is_seen_again(tmp_path: Path) -> None:
    problems = training_problems(make_modules(tmp_path / "data", 6), LICENCES)
    seen = [item.sha256 for step in range(3) for item in chosen_at(problems, step, 4, 0)]
    assert len(set(seen[:6])) == len(set(seen[6:])) == 6
    assert seen[:6] != seen[6:]
    assert chosen_at(problems, 1, 4, 0) == chosen_at(problems, 1, 4, 0)
    assert chosen_at(problems, 0, 6, 0) != chosen_at(problems, 0, 6, 1)
    assert len(chosen_at(problems[:1], 5, 4, 0)) == 4
