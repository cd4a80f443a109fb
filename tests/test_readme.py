"""Does the README say what is true of the Makefile, the examples and the commands?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentkernel.cli.command_table import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("goal", ["run", "test"])
def test_the_two_commands_are_the_makefiles(goal: str) -> None:
    assert re.search(rf"^make {goal}\b", README, re.M)
    assert re.search(rf"^{goal}:", MAKEFILE, re.M)


def test_every_make_goal_in_the_readme_exists() -> None:
    goals = set(re.findall(r"`?make ([a-z-]+)", README))
    assert {goal for goal in goals if not re.search(rf"^{goal}:", MAKEFILE, re.M)} == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_has_its_line(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("command", [command.name for command in COMMANDS if not command.hidden])
def test_every_command_has_its_line(command: str) -> None:
    assert re.search(rf"`(agentkernel )?{command}[ `]", README)


def test_ci_runs_make_test() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert text.splitlines()[-1] == "exec make test"


@pytest.mark.parametrize("text", [README, MAKEFILE, (ROOT / "CONTRIBUTING.md").read_text()])
def test_how_long_the_tests_take_is_said_where_they_are_named(text: str) -> None:
    assert re.search(r"make test\b.*20 minutes on two cores", text)
