"""The help of each command as it stands in tests/golden/help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

from agentkernel.cli.app import app, run
from tests.goldens import same_as_golden

GOLDEN = Path(__file__).parents[1] / "golden" / "help"


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group, the program itself first."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


COMMANDS = tuple(commands(typer.main.get_command(app)))


def file_of(words: tuple[str, ...]) -> Path:
    return GOLDEN / f"{'-'.join(('agentkernel', *words))}.txt"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "agentkernel")
def test_the_help_of_a_command_is_its_golden_file(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    command = " ".join(("agentkernel", *words))
    same_as_golden(file_of(words), capsys.readouterr().out, f"'{command} --help'")


def test_no_command_went_away() -> None:
    known = sorted(path.name for path in GOLDEN.glob("*.txt"))
    assert known == sorted(file_of(words).name for words in COMMANDS)
