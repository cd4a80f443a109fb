"""Do the commands for a model's data say what they made, and a mistake in one line?"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.train.pairs import rate
from tests.cli.commands import Cli
from tests.training.data.judged_rows import made_rows, write_rows


def test_problems_are_written_once_and_the_same_for_a_seed(tmp_path: Path, cli: Cli) -> None:
    words = ["train", "problems", "--count", "5", "--seed", "3", "--json", "--out"]
    assert cli.json([*words, str(tmp_path / "a")])["written"] == 5
    assert cli.json([*words, str(tmp_path / "a")])["written"] == 0
    assert run([*words, str(tmp_path / "b")]) == 0
    first, second = (
        {path.name: path.read_text() for path in (tmp_path / name).iterdir()} for name in "ab"
    )
    assert first == second
    assert len(first) == 5


def test_data_says_what_it_made_what_is_missing_and_how_to_make_it_again(
    tmp_path: Path, cli: Cli
) -> None:
    source = write_rows(tmp_path / "pairs.jsonl.gz", made_rows(20, timed=False))
    out = tmp_path / "out"
    words = ["train", "data", "--from", str(source), "--out", str(out), "-c", "data.held_out=3"]
    said = cli(words).out
    assert "3 modules held out" in said
    assert "not filled: optimise: 0 rows" in said
    assert "unreadable" not in said
    page = (out / "card.md").read_text()
    assert f"agentkernel train data --from {source}" in page
    assert "-c data.held_out=3" in page
    card = cli.json([*words, "--json"])
    assert card["held_out_modules"] == 3
    assert card["out"] == str(out)


def test_data_says_how_much_of_a_source_was_unreadable(tmp_path: Path, cli: Cli) -> None:
    source = write_rows(tmp_path / "pairs.jsonl.gz", made_rows(20))
    with gzip.open(source, "at") as file:
        file.write("[]\n[]\n")
    words = ["train", "data", "--from", str(source), "--out", str(tmp_path / "out")]
    assert "unreadable: 2 x a list, not a JSON object" in cli([*words, "-c", "data.held_out=3"]).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "--out", "{out}"], "no --from"),
        (["data", "--from", "{dir}/none", "--out", "{out}"], "Nothing at"),
        (["data", "--from", "{dir}", "--out", "{out}"], "Cannot tell what"),
        (["data", "--from", "{pairs}", "--out", "{dir}"], "is no training data"),
        (["data", "--from", "{pairs}", "--out", "{out}", "-c", "data.held=1"], "data.held_out"),
        (["data", "--from", "{pairs}", "--out", "{out}", "-c", "data.held_out=0"], "held_out"),
        (["data", "--from", "{pairs}", "--out", "{out}", "-c", "data.shares={{}}"], "data.shares"),
        (["data", "--from", "{pairs}", "--out", "{out}", "--config", "huge"], "Unknown training"),
        (["data", "--from", "{empty}", "--out", "{out}"], "Nothing can be learned"),
        (["pairs", "--out", "{out}.jsonl.gz"], "neither --count nor --problems"),
        (["pairs", "--out", "{out}.txt", "--count", "1"], "jsonl.gz"),
        (["pairs", "--out", "{out}.jsonl.gz", "--problems", "{dir}/none"], "No problems at"),
        (
            ["pairs", "--out", "{out}.jsonl.gz", "--problems", "{dir}", "--kind", "pool"],
            "--kind 'pool' chooses among made modules",
        ),
        (
            ["pairs", "--out", "{out}.jsonl.gz", "--count", "1", "--kind", "pools"],
            "No modules of the kind 'pools'",
        ),
        (
            [
                *("pairs", "--out", "{out}.jsonl.gz", "--count", "1"),
                *("--kind", "all", "--kind", "x"),
            ],
            "No modules of the kind 'x'",
        ),
        (["pairs", "--out", "{out}.jsonl.gz", "--count", "1", "--target", "h1000"], "h1000"),
        (
            [
                *("pairs", "--out", "{out}.jsonl.gz", "--count", "1"),
                *("--device", "cuda", "--target", "mi300x"),
            ],
            "no GPU here",
        ),
        (["pairs", "--out", "{out}.jsonl.gz", "--count", "0"], "--count"),
        (["pairs", "--out", "{pairs}/rows.jsonl.gz", "--count", "1"], "Cannot write"),
        (["pairs", "--out", "{other}", "--count", "1"], "Expected a new file"),
        (["problems", "--count", "0", "--out", "{out}"], "--count"),
        (["problems", "--count", "2", "--out", "{pairs}"], "Cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(
    words: list[str], said: str, tmp_path: Path, cli: Cli
) -> None:
    pairs = write_rows(tmp_path / "dir.jsonl.gz", made_rows(3))
    empty = write_rows(tmp_path / "empty.jsonl.gz", [])
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "notes.txt").write_text("mine")
    other = tmp_path / "other.jsonl.gz"
    other.write_bytes(gzip.compress(b'{"mine": 1}\n'))
    names = {"dir": tmp_path / "dir", "out": tmp_path / "out", "pairs": pairs, "empty": empty}
    names["other"] = other
    line = cli.refused(["train", *(word.format(**names) for word in words)])
    assert said in line
    assert not (tmp_path / "out").exists()


def test_the_rate_and_what_is_left() -> None:
    assert rate(30, 20, 50, 10.0) == "2.0 rows/s, 10 s left"
    assert rate(30, 20, 5000, 10.0) == "2.0 rows/s, 41 min left"
    assert rate(30, 20, None, 10.0) == "2.0 rows/s"
    assert rate(30, 0, 50, 10.0) == ""
