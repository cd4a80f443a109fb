from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.errors import SettingError
from agentkernel.training.settings import PACKAGED, load_training, with_model


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_ones_are_read_and_carry_their_name(name: str) -> None:
    found = load_training(name)
    assert found.name == name
    assert (found.model is None) != (found.new is None)
    if found.new is not None:
        assert found.sft.window <= found.new.window


def test_kernelllm_was_trained_in_batches_of_32_for_10_epochs() -> None:
    sft = load_training("llama-3.1-8b").sft
    assert (sft.batch * sft.accumulate, sft.epochs, sft.packing) == (32, 10, False)


def test_keys_are_put_on_top() -> None:
    keys = ["sft.epochs=3", "new.hidden=32", "sft.lora.rank=4", "sft.tasks=[write]"]
    found = load_training("tiny", keys)
    assert found.new is not None
    assert (found.sft.epochs, found.new.hidden, found.sft.lora.rank) == (3, 32, 4)
    assert found.sft.tasks == ("write",)
    assert with_model(found, "some/where").new is None
    assert with_model(found, None) == found


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: own\nmodel: some/where\nsft: {epochs: 2}\n")
    assert load_training(str(path), ["sft.batch=1"]).sft.batch == 1


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("smal", [], "Known: tiny, small"),
        ("nowhere.yaml", [], "Cannot read"),
        ("tiny", ["sft.epoch=2"], "nearest known one is 'sft.epochs'"),
        ("tiny", ["sft.epochs"], "does not read as key=value"),
        ("tiny", ["sft.epochs=[1"], "not a YAML value"),
        ("tiny", ["sft.batch=0"], "sft.batch"),
        ("tiny", ["sft.tasks=[sing]"], "sft.tasks"),
        ("tiny", ["model=x/y"], "both"),
        ("tiny", ["new=null"], "neither"),
    ],
)
def test_a_mistake_is_named(config: str, overrides: list[str], words: str) -> None:
    with pytest.raises(SettingError, match=words.replace("[", r"\[")) as caught:
        load_training(config, overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "data.shares={write: -1}",
        "data.seed=-1",
        "new.hidden=0",
        "new.layers=0",
        "new.heads=0",
        "new.intermediate=0",
        "new.window=1",
        "sft.lora.rank=0",
        "sft.lora.alpha=0",
        "sft.lora.dropout=1",
        "sft.lora.modules=[]",
        "sft.lora.modules=['']",
        "sft.lora.modules=''",
        "sft.epochs=0",
        "sft.epochs=.inf",
        "sft.epochs=.nan",
        "sft.most_steps=0",
        "sft.most_minutes=.inf",
        "sft.window=1",
        "sft.learning_rate=0",
        "sft.warmup_share=1.5",
        "sft.weight_decay=-1",
        "sft.tasks=[]",
        "sft.seed=-1",
        "rl.correct=-1",
        "rl.speed=-1",
        "rl.most_speedup=0",
        "rl.own_share=-1",
        "rl.hack=1",
        "rl.no_file=1",
        "rl.learning_rate=0",
        "rl.clip=1",
        "rl.clip_high=0",
        "rl.temperature=0",
        "rl.temperature=.nan",
        "rl.top_p=0",
        "rl.most_tokens=0",
        "rl.seed=4294967296",
        "sampling.temperature=-1",
        "sampling.top_p=1.5",
        "sampling.most_tokens=0",
    ],
)
def test_a_number_that_means_nothing_is_named(override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(SettingError, match=f"Setting '{key}") as caught:
        load_training("tiny", [override])
    assert "\n" not in str(caught.value)


def test_heads_divide_the_hidden_size_before_anything_is_made() -> None:
    with pytest.raises(SettingError, match=r"'new\.heads'.* is 5\. A hidden size of 16 does not"):
        load_training("tiny", ["new.heads=5"])


def test_a_file_that_holds_a_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("- 1\n")
    with pytest.raises(SettingError, match="holds a list"):
        load_training(str(path))
