"""Does `train cost` say what a training needs, and does its page say the same?"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agentkernel.cli.train.cost import between
from agentkernel.training.cost import Range
from tests.cli.commands import Cli

PAGE = Path(__file__).parents[3] / "docs" / "training-cost.md"
BLOCKS = re.findall(r"^```\n\$ agentkernel (.+)\n((?:.*\n)*?)```$", PAGE.read_text(), re.M)
COST = ["train", "cost", "--target", "h100"]


def test_the_page_has_the_blocks_that_it_is_about() -> None:
    commands = [command for command, _ in BLOCKS]
    assert len(commands) >= 6
    assert PAGE.read_text().count("\n$ agentkernel ") == len(commands)
    assert all("--target" in command for command in commands)


@pytest.mark.parametrize(("command", "text"), BLOCKS, ids=[item[0] for item in BLOCKS])
def test_the_page_shows_what_the_command_prints(command: str, text: str, cli: Cli) -> None:
    shown = [line.rstrip() for line in cli(shlex.split(command)).out.splitlines()]
    assert shown == text.splitlines()


@pytest.mark.parametrize(
    ("name", "config", "gpus"),
    [
        ("3B on one", "qwen2.5-coder-3b", "1"),
        ("8B on one", "llama-3.1-8b", "1"),
        ("8B on eight", "llama-3.1-8b", "8"),
    ],
)
def test_the_page_begins_with_what_each_method_needs(
    name: str, config: str, gpus: str, cli: Cli
) -> None:
    words = ["--config", config, "--gpus", gpus, "-c", "sft.epochs=3", "--json"]
    found = cli.json([*COST, *words])
    lines = PAGE.read_text().splitlines()
    for tuned, practised in zip(found["sft"], found["rl"], strict=True):
        cells = [cell for item in (tuned, practised) for cell in cells_of(item)]
        assert f"| {name} | {tuned['method']} | {' | '.join(cells)} |" in lines


def cells_of(found: dict[str, Any]) -> tuple[str, str]:
    """Memory and time; no time where there is no room."""
    needed = f"{found['memory']['total_gib']:.0f} GiB"
    if not found["memory"]["fits"]:
        return f"{needed}, does not fit", "-"
    return f"{needed}, fits", between(Range.model_validate(found["hours"]))


def test_the_page_says_how_far_it_is_from_what_was_published(cli: Cli) -> None:
    page = PAGE.read_text()
    for config, gpus, rows, target, hours in (
        ("qwen2.5-coder-3b", "1", "18162", "h100", 98 / 60),
        ("llama-3.1-8b", "16", "25000", "h100", 12),
        ("llama-3.1-8b", "16", "25000", "a100-80", 12),
    ):
        words = ["--config", config, "--gpus", gpus, "--rows", rows, "--target", target]
        computed = cli.json(["train", "cost", *words, "--json"])["sft"][0]["hours"]
        ratios = f"{hours / computed['high']:.1f} to {hours / computed['low']:.1f} times"
        assert ratios in page


def test_it_says_that_nobody_measured(cli: Cli) -> None:
    shown = cli([*COST, "--config", "llama-3.1-8b"]).out
    assert shown.startswith("computed, not measured: llama-3.1-8b, 8,030,261,248 weights")
    assert "does not fit" in shown


def test_json_holds_the_same(cli: Cli) -> None:
    words = ["--config", "llama-3.1-8b", "--gpus", "8", "-c", "sft.epochs=3", "--json"]
    found = cli.json([*COST, *words])
    assert found["basis"] == "computed, not measured"
    assert [item["method"] for item in found["sft"]] == ["full", "lora", "qlora"]
    assert [item["memory"]["fits"] for item in found["sft"]] == [True, True, True]
    assert [item["memory"]["fits"] for item in found["rl"]] == [False, True, True]
    assert found["sft"][0]["tokens"] == 30_000 * 1500 * 3


def test_a_new_model_has_one_method(cli: Cli) -> None:
    shown = cli([*COST, "--config", "small", "--only", "sft"]).out
    assert "lora" not in shown
    assert "rl on" not in shown


def test_steps_and_shards_are_those_of_the_settings(cli: Cli) -> None:
    words = ["--config", "llama-3.1-8b", "--gpus", "2", "--only", "sft"]
    shown = cli([*COST, *words, "-c", "sft.most_steps=10", "-c", "sft.shard=none"]).out
    assert "1,500 tokens, 10 steps; 1 x" in shown
    assert "a part" not in shown


def test_practice_alone_is_shown_alone(cli: Cli) -> None:
    shown = cli([*COST, "--config", "small", "--only", "rl"]).out
    assert "rl on one GPU" in shown
    assert "sft:" not in shown


def test_a_folder_of_weights_is_read(tmp_path: Path, cli: Cli) -> None:
    sizes = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 200,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    found = cli.json([*COST, "--model", str(tmp_path), "--json"])
    assert found["shape"]["source"] == str(tmp_path / "config.json")
    assert found["parameters"] == 200 * 64 + 2 * (12_288 + 18_432 + 128 + 128) + 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nobody/knows"], "shape of 'nobody/knows'"),
        (["--model", "{here}"], "config.json"),
        (["--config", "tiny", "--tokens-a-row", "5000"], "window of 2048"),
        (["--target", "h1000"], "h1000"),
        (["--gpus", "0"], "--gpus"),
        (["--config", "huge"], "Unknown training"),
        (["-c", "sft.lora.modules=[q]"], "names no matrix"),
        (["-c", "sft.most_steps=0"], "sft.most_steps"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(
    words: list[str], said: str, tmp_path: Path, cli: Cli
) -> None:
    line = cli.refused(["train", "cost", *(word.format(here=tmp_path) for word in words)])
    assert said in line


def test_both_ends_are_shown_in_hours_or_minutes() -> None:
    assert between(Range(low=0.31, high=0.52)) == "19 - 31 min"
    assert between(Range(low=0.04, high=0.06)) == "2.4 - 3.6 min"
    assert between(Range(low=0.9, high=12.4)) == "0.9 - 12 h"
