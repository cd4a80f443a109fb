from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path

import pytest

from agentkernel.domain.errors import TrainingError
from agentkernel.training.data.rows import (
    admitted,
    fingerprint,
    held_out_hash,
    held_out_problems,
    kernel_of,
    read_rows,
    with_replay,
)
from agentkernel.training.settings import TASKS, DataSettings, TrainingRow
from tests.training.training_rows import kernel, make_data, make_row, write_rows

LICENCES = DataSettings().licences
POISON: tuple[tuple[str, TrainingRow], ...] = (
    ("labelled 'refused'", make_row(1, label="refused")),
    ("labelled 'not-judged'", make_row(1, label="not-judged")),
    ("split 'held-out'", make_row(1, split="held-out")),
    ("licence is 'GPL-3.0'", make_row(1, licence="GPL-3.0")),
    ("not the judged one", make_row(1, kernel_sha256="0" * 64)),
    ("not the judged one", make_row(1, completion=f"```python\n{kernel(2)}```")),
    ("holds no file", make_row(1, completion="I would rather not.")),
)


@pytest.mark.parametrize(("why", "row"), POISON)
def test_a_poisoned_row_ends_it_and_is_named(why: str, row: TrainingRow) -> None:
    with pytest.raises(TrainingError, match=why) as caught:
        list(admitted([make_row(0), row, make_row(2)], LICENCES, TASKS))
    assert row.id[:12] in str(caught.value)


def test_a_poisoned_row_of_a_task_that_nobody_asked_for_ends_it_too() -> None:
    row = make_row(1, task="repair", label="refused")
    with pytest.raises(TrainingError, match="refused"):
        list(admitted([row], LICENCES, ("write",)))


def test_rows_of_other_tasks_are_left_out() -> None:
    rows = [make_row(0), make_row(1, task="repair"), make_row(2, task="optimise")]
    assert [row.task for row in admitted(rows, LICENCES, ("write", "repair"))] == [
        "write",
        "repair",
    ]


def test_the_file_is_the_last_fenced_one() -> None:
    text = "first\n```python\na = 1\n```\nthen\n````python\nb = '```'\n````\n"
    assert kernel_of(text) == "b = '```'\n"
    assert kernel_of("none") is None


def test_older_rows_are_the_share_that_was_asked_for_and_the_same_each_time() -> None:
    fresh = [make_row(number) for number in range(12)]
    older = [make_row(number) for number in range(20, 40)]
    mixed = with_replay(fresh, older, 0.25, seed=3)
    assert len(mixed) == 16
    assert mixed == with_replay(fresh, older, 0.25, seed=3)
    assert mixed != with_replay(fresh, older, 0.25, seed=4)
    assert with_replay(fresh, older, 0.0, seed=3) == tuple(fresh)
    assert len(with_replay(fresh, older[:2], 0.9, seed=3)) == 14


def test_a_folder_is_read_and_known_again(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    assert len(list(read_rows(data, "train"))) == 30
    assert [path.stem for path in held_out_problems(data)] == ["m90", "m91"]
    same = write_rows(tmp_path / "same", read_rows(data, "train"))
    other = write_rows(tmp_path / "other", [make_row(5)])
    assert list(read_rows(same, "train")) == list(read_rows(data, "train"))
    assert fingerprint(data) != fingerprint(other)


def test_rows_that_were_changed_after_their_card_was_written_are_refused(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    for card in ('{"train_sha256": ""}', f'{{"train_sha256": "{fingerprint(data)}"}}'):
        (data / "card.json").write_text(card)
        assert fingerprint(data) == sha256((data / "train.jsonl.gz").read_bytes()).hexdigest()
    with gzip.open(data / "train.jsonl.gz", "at") as file:
        file.write(make_row(70).model_dump_json() + "\n")
    with pytest.raises(
        TrainingError, match=r"changed after it was made.*card\.json says"
    ) as caught:
        fingerprint(data)
    assert "\n" not in str(caught.value)


def test_a_held_out_part_that_was_changed_is_refused(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    whole = held_out_hash(data)
    (data / "card.json").write_text(f'{{"held_out_sha256": "{whole}"}}')
    assert held_out_hash(data) == whole
    module = data / "problems" / "held-out" / "m90.py"
    text = module.read_text()
    module.write_text(text + "# easier\n")
    with pytest.raises(TrainingError, match=r"held-out.*changed after it was made"):
        held_out_hash(data)
    module.write_text(text)
    held_out_hash(data)
    module.rename(module.with_name("m92.py"))
    with pytest.raises(TrainingError, match="changed after it was made"):
        held_out_hash(data)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="train data"):
        fingerprint(tmp_path)
    path = write_rows(tmp_path, [make_row(0)]) / "train.jsonl.gz"
    with gzip.open(path, "at", encoding="utf-8") as file:
        file.write('{"task": "write"}\n')
    with pytest.raises(TrainingError, match="Line 2"):
        list(read_rows(tmp_path, "train"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TrainingError, match="Cannot read"):
        list(read_rows(tmp_path, "train"))
