"""What a command says where its output is closed, full or no longer read, and at a long name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.terminal import json_line
from tests.cli.commands import Cli

TARGETS = f"{sys.executable} -m agentkernel targets"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (f"{TARGETS} >&-", 4, "The standard output is closed"),
        (f"{TARGETS} >/dev/full", 4, "Cannot write the standard output: No space left"),
        (f"{TARGETS} | true; exit ${{PIPESTATUS[0]}}", 4, "reader of the output went away"),
        (f"{TARGETS} <&- 2>&- >/dev/null", 0, ""),
    ],
)
def test_an_output_that_is_lost_is_one_line(redirected: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", redirected], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == (1 if said else 0)


def test_json_has_no_bare_infinity() -> None:
    printed = json_line({"verdict": {"err_ratio": float("inf"), "name": "\x1b\u00fc"}, "best": 1.5})
    assert printed == (
        '{"verdict": {"err_ratio": "Infinity", "name": "\\u001b\\u00fc"}, "best": 1.5}'
    )


LONG = "n" * 300


@pytest.mark.parametrize(
    "words",
    [
        ["plan", f"{LONG}.py"],
        ["optimize", f"{LONG}.py"],
        ["runs", "--runs", LONG],
        ["show", "last", "--runs", LONG],
        ["show", LONG],
        ["resume", LONG],
        ["library", "list", "--library", LONG],
        ["knowledge", "search", "x", "--where", LONG],
        ["batch", f"{LONG}.yaml"],
    ],
)
def test_a_name_of_300_letters_is_the_users_mistake(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli.refused(words)
    assert "bug" not in said
