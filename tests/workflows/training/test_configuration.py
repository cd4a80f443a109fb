from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.errors import SettingError
from agentkernel.workflows.training.configuration import PACKAGED, load_training, with_model


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
        ("tiny", ["sft.epochs=[1"], "no YAML value"),
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


def test_a_file_that_holds_a_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("- 1\n")
    with pytest.raises(SettingError, match="holds a list"):
        load_training(str(path))
