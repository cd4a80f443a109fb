"""Does `redteam` end in 0, 3, 2 or 4 where it should, and say how it went?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from tests.redteam.small import HONEST, HOSTILE, candidate, put, small_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return small_corpus(tmp_path / "corpus")


@pytest.mark.slow
def test_all_as_expected_is_0(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.md"
    assert run(["redteam", "--corpus", str(corpus), "--jobs", "1", "--write", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 as expected" in shown
    assert "candidates a minute" in shown
    assert "time: start" in shown
    assert "| `nearly` |" in path.read_text()


@pytest.mark.slow
def test_an_honest_one_that_is_wrong_is_3(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(corpus, "honest", "wrong", candidate("Claims to be right.", HONEST, "2.0"))
    put(corpus, "hostile", "gpu", candidate("G.", HOSTILE.replace("cpu", "gpu"), "1"))
    words = ["redteam", "--corpus", str(corpus), "--only", "wrong", "--only", "gpu", "--json"]
    assert run(words) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["unexpected"] == ["wrong"]
    assert found["judged"] in (1, 2)
    assert found["found"][-1]["gate"] == "correctness"
    assert found["spent"]["cases_s"] > 0


def test_no_corpus_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["redteam"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "tests/redteam" in captured.err
    assert "--corpus" in captured.err


def test_nothing_that_can_act_here_is_4(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    put(corpus, "hostile", "gpu", candidate("G.", HOSTILE.replace("cpu", "gpu"), "1"))
    assert run(["redteam", "--corpus", str(corpus), "--only", "gpu"]) == 4
    assert "GPU" in capsys.readouterr().err
