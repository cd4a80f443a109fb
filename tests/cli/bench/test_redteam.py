"""Does `redteam` end in 0, 3, 2 or 4 where it should, and say how it went?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Cli
from tests.redteam.small import HONEST, HOSTILE, candidate, put, small_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return small_corpus(tmp_path / "corpus")


@pytest.mark.slow
def test_all_as_expected_is_0(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "table.md"
    shown = cli(["redteam", "--corpus", str(corpus), "--jobs", "1", "--write", str(path)]).out
    assert "2 of 2 as expected" in shown
    assert "candidates a minute" in shown
    assert "time: start" in shown
    assert "| `nearly` |" in path.read_text()


@pytest.mark.slow
def test_an_honest_one_that_is_wrong_is_3(corpus: Path, cli: Cli) -> None:
    put(corpus, "honest", "wrong", candidate("Claims to be right.", HONEST, "2.0"))
    put(corpus, "hostile", "gpu", candidate("G.", HOSTILE.replace("cpu", "gpu"), "1"))
    words = ["redteam", "--corpus", str(corpus), "--only", "wrong", "--only", "gpu", "--json"]
    found = cli.json(words, 3)
    assert found["unexpected"] == ["wrong"]
    assert found["judged"] in (1, 2)
    assert found["found"][-1]["gate"] == "correctness"
    assert found["spent"]["cases_s"] > 0


def test_no_corpus_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    captured = cli(["redteam"], 2)
    assert captured.err.count("\n") == 1
    assert "tests/redteam" in captured.err
    assert "--corpus" in captured.err


def test_nothing_that_can_act_here_is_4(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    put(corpus, "hostile", "gpu", candidate("G.", HOSTILE.replace("cpu", "gpu"), "1"))
    assert "GPU" in cli(["redteam", "--corpus", str(corpus), "--only", "gpu"], 4).err
