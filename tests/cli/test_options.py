"""Do flags that are described once reach the commands that share them?"""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from agentkernel.cli.options import (
    NO_CONFIGURED,
    NO_DRAFTING,
    AsJson,
    Configured,
    Drafting,
    Replay,
    TargetName,
    with_groups,
)

RUNNER = CliRunner()


@with_groups
def command(
    target: TargetName = None,
    drafting: Drafting = NO_DRAFTING,
    replay: Replay = None,
    configured: Configured = NO_CONFIGURED,
    as_json: AsJson = False,
) -> None:
    """Say what was asked for."""
    given = {**drafting.settings(replay), **configured.settings()}
    print({name: value for name, value in given.items() if value is not None})
    print(target, configured.overrides, configured.config, as_json)


def app() -> typer.Typer:
    found = typer.Typer(add_completion=False, rich_markup_mode=None)
    found.command()(command)
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
