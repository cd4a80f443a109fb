"""Is a suite read in a stable order, cut into equal parts, and is a mistake one clear line?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.bench.suite import Shard, parse_shard, part, read_suite
from agentkernel.domain.errors import ProblemError, SettingError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("level1/10_b", "level1/2_a", "level2/x", "level1/_helper", ".git/y", "top"):
        path = tmp_path / "suite" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path / "suite"


def test_levels_are_subfolders_and_numbers_count(folder: Path) -> None:
    found = read_suite(folder)
    assert [item.name for item in found] == ["level1/2_a", "level1/10_b", "level2/x", "top"]
    assert [item.level for item in found] == ["level1", "level1", "level2", "suite"]
    assert len({item.sha256 for item in found}) == 4


def test_only_keeps_names_that_contain_a_word(folder: Path) -> None:
    assert [item.name for item in read_suite(folder, ["_a", "level2"])] == [
        "level1/2_a",
        "level2/x",
    ]
    with pytest.raises(ProblemError, match="'softmax'"):
        read_suite(folder, ["softmax"])


def test_a_list_names_problems_and_their_order(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "some.txt"
    listed.write_text("# the long one first\nlevel2/x\n\n level1/2_a \nlevel2/x\n")
    found = read_suite(folder, listed=listed)
    assert [item.name for item in found] == ["level2/x", "level1/2_a"]
    assert [item.name for item in read_suite(folder, ["_a"], listed)] == ["level1/2_a"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("level2/x\nlevel1/y\n", "names 'level1/y', which is not there"),
        ("# nothing\n", "names no problem"),
        (None, "cannot be read"),
    ],
)
def test_a_list_that_is_wrong(folder: Path, tmp_path: Path, text: str | None, hint: str) -> None:
    listed = tmp_path / "some.txt"
    if text is not None:
        listed.write_text(text)
    with pytest.raises(ProblemError, match=hint) as raised:
        read_suite(folder, listed=listed)
    assert "\n" not in str(raised.value)


def test_no_folder_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="No such suite"):
        read_suite(tmp_path / "none")
    with pytest.raises(ProblemError, match="is empty"):
        read_suite(tmp_path)


@pytest.mark.parametrize("text", ["5/3", "0/3", "3", "a/b", "1/0", "-1/3", ""])
def test_a_bad_shard(text: str) -> None:
    with pytest.raises(SettingError, match="1 <= i <= n"):
        parse_shard(text)


@given(st.lists(st.integers()), st.integers(1, 9))
def test_the_parts_are_the_whole_and_alike(items: list[int], count: int) -> None:
    parts = [part(items, Shard(index=index, count=count)) for index in range(1, count + 1)]
    assert sorted(value for own in parts for value in own) == sorted(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_whole_is_one_part() -> None:
    assert parse_shard(None) == Shard() == parse_shard("1/1")
    assert (Shard().suffix, parse_shard("2/5").suffix) == ("", "-2of5")
