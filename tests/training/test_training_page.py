"""Does docs/training.md name only settings, configurations and flags that there are?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentkernel.cli.app import build
from agentkernel.cli.command_table import COMMANDS, GROUPS
from agentkernel.training.settings import PACKAGED, known_keys

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
KEYS = sorted(set(re.findall(r"\b(?:sft|rl|data)\.(?:lora\.)?[a-z_]+\b(?!\.)", PAGE)))


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_that_is_named_can_be_set(key: str) -> None:
    known = set(known_keys())
    assert key in known or any(item.startswith(f"{key}.") for item in known)


def test_a_flag_that_is_named_can_be_given() -> None:
    train = next(group.commands for group in GROUPS if group.name == "train")
    commands = [build(row) for row in (*COMMANDS, *train)]
    there = {flag for item in commands for option in item.params for flag in option.opts}
    assert set(re.findall(r"`?(--[a-z][a-z-]+)", PAGE)) - there == set()


@pytest.mark.parametrize("name", PACKAGED)
def test_every_packaged_training_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE
