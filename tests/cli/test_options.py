"""Do flags that are described once reach the commands that share them?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer
from typer.testing import CliRunner

from agentkernel.cli.options import (
    AsJson,
    Configured,
    Drafting,
    Replay,
    TargetName,
    command_of,
    settings_of,
)

RUNNER = CliRunner()


@dataclass(frozen=True)
class CommandFlags:
    """Say what was asked for."""

    target: TargetName = None
    drafting: Drafting = Drafting()
    replay: Replay = None
    configured: Configured = Configured()
    as_json: AsJson = False


def command(flags: CommandFlags) -> None:
    given = {name: value for name, value in settings_of(flags).items() if value is not None}
    print({name: value for name, value in given.items() if name != "target"})
    print(flags.target, flags.configured.overrides, flags.configured.config, flags.as_json)


def app() -> typer.Typer:
    found = typer.Typer(add_completion=False, rich_markup_mode=None)
    found.command()(command_of(CommandFlags, command))
    return found


def test_the_flags_of_a_group_stand_in_its_place() -> None:
    text = RUNNER.invoke(app(), ["--help"]).output
    names = ["--target", "--runs", "--coder", "--usd", "--replay", "--config", "--json"]
    places = [text.index(name) for name in names]
    assert places == sorted(places)
    assert "--drafting" not in text
    assert "--configured" not in text


def test_flags_become_settings() -> None:
    assert RUNNER.invoke(app(), []).output == "{}\nNone None None False\n"
    words = "--target h200 --runs r --coder team --samples 3 --tokens 9 --usd 1.5 --replay last"
    more = "-c judge.seeds=3 --config f.yaml --allow-unsandboxed --json"
    result = RUNNER.invoke(app(), [*words.split(), *more.split()])
    settings, rest = result.output.splitlines()
    assert eval(settings) == {
        "runs": "r",
        "coder": "team",
        "models.samples": 3,
        "models.replay": "last",
        "budget.tokens": 9,
        "budget.usd": 1.5,
        "judge.allow_unsandboxed": True,
    }
    assert rest == f"h200 ['judge.seeds=3'] {Path('f.yaml')} True"
