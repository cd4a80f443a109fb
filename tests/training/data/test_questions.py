from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.conversation import write_turn
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import TrainingError, UnknownTarget
from agentkernel.training.data.conversations import from_rows, questions_of, target_of
from agentkernel.training.settings import TrainingRow
from tests.training.training_rows import kernel, make_data, make_row, problem, write_rows


def held(number: int, **changes: object) -> TrainingRow:
    return make_row(number, "held-out", "repair", target="h100", **changes)


@pytest.fixture
def problems(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"m{number}.py" for number in (0, 1, 2)]
    for number, path in enumerate(found):
        path.write_text(problem(number))
    return found


def test_a_row_is_asked_as_it_stands_about_the_module_of_its_hash(problems: list[Path]) -> None:
    rows = [held(1), held(7), held(0), make_row(0, "held-out")]
    found = from_rows("repair", rows, problems, "triton")
    assert [item.path for item in found.items] == problems[:2]
    assert found.items[0].messages == held(0).messages
    assert found.items[0].given == kernel(1)
    assert found.task == "repair"
    assert "H100" in found.target


def test_a_module_may_have_several_questions_each_once(problems: list[Path]) -> None:
    row = held(0)
    other = row.evolve(messages=(*row.messages[:2], held(1).messages[0]))
    found = from_rows("repair", [row, other, row], problems, "triton").items
    assert [item.path for item in found] == [problems[0]] * 2
    assert len({item.case for item in found}) == 2


def test_a_row_that_asks_under_another_policy_is_left_out(problems: list[Path]) -> None:
    row = held(0)
    mixed = write_turn(problem(0), "Model", "NVIDIA H100", "mixed")
    other = row.evolve(messages=(mixed, *row.messages[1:]))
    assert from_rows("repair", [other], problems, "triton").items == ()
    assert len(from_rows("repair", [other], problems, "mixed").items) == 1
    named = write_turn(problem(0), "Block", "NVIDIA H100", "triton")
    renamed = row.evolve(messages=(named, *row.messages[1:]))
    assert len(from_rows("repair", [renamed], problems, "triton").items) == 1


def test_a_file_of_other_line_ends_is_the_module_of_its_bytes(tmp_path: Path) -> None:
    path, text = tmp_path / "m.py", problem(0).replace("\n", "\r\n")
    path.write_bytes(text.encode())
    same = sha256_text(text)
    assert len(from_rows("repair", [held(0, problem_sha256=same)], [path], "triton").items) == 1
    assert from_rows("repair", [held(0)], [path], "triton").items == ()


def test_questions_of_a_folder(tmp_path: Path, problems: list[Path]) -> None:
    data = make_data(tmp_path / "data")
    write = questions_of("write", data, problems, "h100", "triton")
    assert [item.given for item in write.items] == [None] * 3
    with pytest.raises(TrainingError, match="'repair' on 3 modules"):
        questions_of("repair", data, problems, None, "triton")
    some = write_rows(tmp_path / "some", [], [held(2)])
    assert [item.path for item in questions_of("repair", some, problems, None, "triton").items] == [
        problems[2]
    ]


def test_to_write_is_asked_as_the_row_asks_it_else_with_the_graph_of_the_file(
    tmp_path: Path, problems: list[Path]
) -> None:
    turn = write_turn(problem(1), "Model", "NVIDIA H100", "triton", "", "add = add(x, 3) [4]")
    row = make_row(1, "held-out", target="h100", messages=(turn,))
    data = write_rows(tmp_path / "data", [], [row])
    same = questions_of("write", data, problems, "h100", "triton").items
    assert same[1].messages == (turn,)
    assert (same[1].case, same[1].given) == ("", None)
    assert "Graph:\n```text\n" in same[0].messages[0].text
    # Another GPU, or another policy, is asked for in other words.
    for target, policy in (("h200", "triton"), ("h100", "mixed")):
        other = questions_of("write", data, problems, target, policy).items  # type: ignore[arg-type]
        assert other[1].messages != (turn,)


def test_the_rows_say_which_gpu_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []

    def found(given: str | None, train: str | None, *held_out: str | None) -> str | None:
        rows = [make_row(9, "held-out", target=target) for target in held_out]
        data = write_rows(tmp_path, [make_row(0, target=train)], rows)
        return target_of(data, given, said.append)

    assert found(None, "l4", "a100-80", None) == "a100-80"
    assert found(None, "l4") == "l4"
    # Several, none, or one that nobody knows: as in a run.
    assert found(None, "l4", "a100-80", "h200") is None
    assert found(None, None) is None
    assert found(None, "h9000") is None
    assert found("a100-80", "l4", "a100-80") == "a100-80"
    assert found("h100", None) == "h100"
    assert said == []
    assert found("h100", "l4") == "h100"
    assert len(said) == 1
    assert "NVIDIA L4" in said[0]
    with pytest.raises(UnknownTarget):
        found("h9000", "l4")
