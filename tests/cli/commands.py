"""The command line as tests call it: words in, exit code and texts out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from agentkernel.cli.app import run


class Said(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


class Cli:
    """Runs a command in this process and gives what it, and nothing before it, wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, words: Sequence[str], code: int = 0) -> Said:
        """The command has to end in `code`."""
        self._capsys.readouterr()
        found = run(list(words))
        said = Said(*self._capsys.readouterr())
        assert found == code, said
        return said

    def json(self, words: Sequence[str], code: int = 0) -> Any:
        return json.loads(self(words, code).out)

    def refused(self, words: Sequence[str]) -> str:
        """The one line about a mistake, beside which nothing is written."""
        said = self(words, 2)
        assert (said.out, said.err.count("\n")) == ("", 1), said
        return said.err
