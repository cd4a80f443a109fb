"""Do files, their classes, targets and runs complete, and damage to nothing?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.cli.completion import (
    complete_file,
    complete_reference,
    complete_run,
    complete_target,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_and_their_classes_complete(here: Path) -> None:
    (here / "norm.py").write_text("class Norm: ...\nclass Other: ...\ndef Name(): ...\n")
    (here / "norm.txt").write_text("")
    (here / "normal").mkdir()
    assert complete_file("no") == ["norm.py", "normal/"]
    assert complete_reference("norm") == ["norm.py", "normal/"]
    assert complete_reference("norm.py:") == ["norm.py:Norm", "norm.py:Other"]
    assert complete_reference("norm.py:N") == ["norm.py:Norm"]


@pytest.mark.parametrize("text", ["class :", "\0", "\udcff"])
def test_a_file_that_cannot_be_read_completes_to_nothing(here: Path, text: str) -> None:
    (here / "bad.py").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert complete_reference("bad.py:") == []
    assert complete_reference("none.py:") == []
    assert complete_file("[") == []


def test_targets_complete() -> None:
    assert complete_target("h1") == ["h100-pcie", "h100-sxm"]
    assert complete_target("x") == []


def test_runs_complete_newest_first(here: Path) -> None:
    assert complete_run("") == []
    for name in ("norm-20260101-000000-aaaa", "norm-20260102-000000-bbbb", ".norm.new"):
        (here / "agentkernel-runs" / name).mkdir(parents=True)
    assert complete_run("") == ["last", "norm-20260102-000000-bbbb", "norm-20260101-000000-aaaa"]
    assert complete_run("norm-20260101") == ["norm-20260101-000000-aaaa"]
