from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from agentkernel.cli.train.evaluate import (
    check_figures_path,
    difference_lines,
    figures,
    table,
    write_figures,
)
from agentkernel.cli.train.outcome import print_line
from agentkernel.domain.errors import OutputError
from agentkernel.training.evaluate.evaluation import PassAt, QuestionCounts, summarize
from agentkernel.training.settings import Task


def passed(task: Task, *correct: int) -> PassAt:
    rows = [
        QuestionCounts(
            problem=f"p{number}",
            family="norm",
            samples=10,
            correct=right,
            hacks=0,
            no_file=0,
            undecided=0,
        )
        for number, right in enumerate(correct)
    ]
    return summarize(rows, 10, (1, 10), "triton", "H100", task=task)


FOUND: dict[str, dict[Task, PassAt]] = {
    "local:sft": {"write": passed("write", 1, 4, 5, 2), "repair": passed("repair", 3, 3, 3, 5)},
    "local:rl": {"write": passed("write", 3, 5, 8, 4), "repair": passed("repair", 3, 3, 2, 5)},
}


def test_a_model_and_a_task_have_a_line_of_one_table() -> None:
    console = Console(width=110)
    with console.capture() as captured:
        console.print(table(FOUND))
    lines = captured.get().splitlines()
    assert " ".join(lines[0].split()) == "model task asked pass@1 [95%] pass@10 [95%] hacks no file"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["local:sft", "write"],
        ["local:sft", "repair"],
        ["local:rl", "write"],
        ["local:rl", "repair"],
    ]
    assert "0.300 [" in lines[1]


def test_answers_that_nobody_decided_are_told() -> None:
    one = passed("write", 1, 4)
    unsure = one.evolve(undecided=7)
    assert "undecided 7 (" in unsure.line()
    assert "undecided" not in one.line()
    console = Console(width=110)
    with console.capture() as captured:
        console.print(table({"a": {"write": unsure}, "b": {"write": one}}))
    heading, first, second = captured.get().splitlines()
    assert heading.split()[-1] == "undecided"
    assert (first.split()[-1], second.split()[-1]) == ("7", "0")


def test_a_file_that_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "figures.json"):
        with pytest.raises(OutputError):
            check_figures_path(path)
    check_figures_path(tmp_path / "figures.json")
    assert not list(tmp_path.iterdir())


def test_a_long_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("word " * 50 + "end")
    assert capsys.readouterr().out.count("\n") == 1


def test_whether_one_is_better_is_one_line() -> None:
    write, repair = difference_lines(FOUND, 0)
    assert write.startswith("local:rl vs local:sft, write: +0.200 [+0.1")
    assert repair.startswith("local:rl vs local:sft, repair: -0.025 [-0.")
    assert difference_lines({"local:sft": FOUND["local:sft"]}, 0) == []


def test_the_file_has_the_figures_of_write_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    write_figures(path, FOUND, 0)
    told = json.loads(path.read_text())
    assert told["local:rl"]["pass_at"]["1"]["value"] == 0.5
    assert len(told["local:rl"]["rows"]) == len(told["local:rl"]["repair"]["rows"]) == 4
    assert told["local:rl"]["against"]["model"] == "local:sft"
    assert told["local:rl"]["against"]["repair"]["value"] == pytest.approx(-0.025)
    assert "against" not in told["local:sft"]
    shown = figures(FOUND, 0, rows=False)["local:sft"]
    assert isinstance(shown, dict)
    assert "rows" not in shown
    assert "rows" not in shown["repair"]
