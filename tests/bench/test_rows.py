"""Does a row, once written, survive whatever a kill does to the file?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.bench.suite import (
    append_row,
    gather,
    in_order,
    read_bench,
    read_rows,
    unreadable_rows,
)
from agentkernel.domain.errors import OutputError, ProblemError
from tests.bench.bench_rows import broken, row, sample, suite


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for item in suite():
        append_row(path, item)
    assert read_rows(path) == suite()
    assert read_rows(tmp_path / "none.jsonl") == ()


@given(st.data())
def test_a_file_cut_anywhere_keeps_its_whole_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "rows.jsonl"
    for item in suite():
        append_row(path, item)
    text = path.read_bytes()
    cut = data.draw(st.integers(0, len(text)))
    path.write_bytes(text[:cut])
    whole = text[:cut].count(b"\n")
    assert read_rows(path) == suite()[:whole]
    append_row(path, broken("level9/z"))
    assert read_rows(path) == (*suite()[:whole], broken("level9/z"))


def test_a_damaged_line_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, suite()[0])
    with path.open("ab") as file:
        file.write(b'{"format": 1, "key": \xff}\n')
    append_row(path, suite()[1])
    assert read_rows(path) == suite()[:2]
    assert unreadable_rows(path) == unreadable_rows(tmp_path) == 1


def test_a_folder_where_rows_should_be_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(ProblemError, match="is a folder"):
        read_bench(tmp_path)


def test_shards_are_gathered_by_key(tmp_path: Path) -> None:
    first, second, third = suite()[:3]
    append_row(tmp_path / "rows-1of2.jsonl", first)
    append_row(tmp_path / "rows-2of2.jsonl", second)
    append_row(tmp_path / "rows.jsonl", first.evolve(coder="other"))
    append_row(tmp_path / "rows.jsonl", third)
    found = gather(tmp_path)
    assert found[first.key].coder == "compiler", "the first one counts"
    keys = [third.key, "unknown", first.key, second.key]
    assert in_order(found.values(), keys) == (third, first, second)
    assert set(read_bench(tmp_path)) == {first, second, third}
    with pytest.raises(ProblemError, match="No rows"):
        read_bench(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        append_row(tmp_path / "none" / "rows.jsonl", suite()[0])


def test_the_best_sample_is_the_fastest_correct_one() -> None:
    wrong, slow, fast = sample(9.0, correct=False), sample(1.5), sample(2.5)
    assert row("level1/a", wrong, slow, fast).best == fast
    assert row("level1/a", wrong).best == wrong
    assert (broken("level1/b").best, broken("level1/b").status) == (None, "failed")
