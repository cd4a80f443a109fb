"""Is a folder one training's alone, and does a mistake cost it nothing?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.domain.errors import TrainingError
from agentkernel.storage.files import sha256_of_file
from agentkernel.training import checkpoints, curve, folder
from agentkernel.training.data.rows import fingerprint
from agentkernel.training.settings import load_training

ONE, OTHER = {"data": "a", "sft.batch": "2"}, {"data": "a", "sft.batch": "4"}


def test_where_no_step_is_kept_another_training_may_begin(tmp_path: Path) -> None:
    folder.claim(tmp_path, ONE)
    (tmp_path / folder.TOKENIZER).mkdir()
    folder.claim(tmp_path, OTHER)
    assert not (tmp_path / folder.TOKENIZER).exists(), "it was made for the other one"
    (tmp_path / curve.FILE).write_text("{}\n")
    with pytest.raises(TrainingError, match=r"another training: sft\.batch was 4"):
        folder.claim(tmp_path, ONE)
    folder.claim(tmp_path, OTHER)


def test_a_setting_that_came_later_and_changes_nothing_is_not_named() -> None:
    plain = folder.identity_of(load_training("tiny", ()), "0" * 64, None)
    assert not {"sft.dropout", "rl.spared"} & set(plain)
    changed = load_training("tiny", ["sft.dropout=0.1", "rl.spared=0.2"])
    named = folder.identity_of(changed, "0" * 64, None)
    assert (named["sft.dropout"], named["rl.spared"]) == ("0.1", "0.2")


def test_a_tokenizer_that_was_laid_there_before_is_kept(tmp_path: Path) -> None:
    (tmp_path / folder.TOKENIZER).mkdir()
    folder.claim(tmp_path, ONE)
    folder.claim(tmp_path, ONE)
    assert (tmp_path / folder.TOKENIZER).is_dir()


@pytest.mark.parametrize("text", ["[]", "{", "7"])
def test_a_spoiled_mark_of_whose_it_is_is_another_training(tmp_path: Path, text: str) -> None:
    (tmp_path / folder.BEGUN).write_text(text)
    (tmp_path / folder.RECORD).write_text("{}")
    with pytest.raises(TrainingError, match="another training: data was None"):
        folder.claim(tmp_path, ONE)


@pytest.mark.parametrize("text", [b"\xff", b"[]", b"{"])
def test_a_card_that_cannot_be_read_ends_a_training_before_it_begins(
    tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "train.jsonl.gz").write_bytes(b"")
    (tmp_path / "card.json").write_bytes(text)
    with pytest.raises(TrainingError, match=r"card\.json' cannot be read"):
        fingerprint(tmp_path)
    assert len(folder.card_hash(tmp_path) or "") == 64


def test_a_training_that_is_done_has_weights(tmp_path: Path) -> None:
    folder.check_weights(tmp_path, "signal")
    for ended in ("steps", "minutes"):
        with pytest.raises(TrainingError, match="holds no weights"):
            folder.check_weights(tmp_path, ended)
    (tmp_path / "model.safetensors").touch()
    folder.check_weights(tmp_path, "steps")


def test_a_setting_that_was_not_named_is_told_by_its_own_value(tmp_path: Path) -> None:
    folder.claim(tmp_path, ONE)
    (tmp_path / curve.FILE).write_text("{}\n")
    with pytest.raises(TrainingError, match=r"rl\.oversample was 1, and is 2\."):
        folder.claim(tmp_path, ONE | {"rl.oversample": "2"})
    folder.claim(tmp_path, ONE | {"rl.oversample": "1"})


def test_finished_weights_that_changed_are_not_taken_for_those_that_were_trained(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"w" * 100)
    hashes = {weights.name: sha256_of_file(weights)}
    (tmp_path / checkpoints.MARKER).write_text(json.dumps(hashes))
    folder.check_weights(tmp_path, "steps")
    weights.write_bytes(b"w" * 99 + b"v")
    with pytest.raises(TrainingError, match="not as it was written"):
        folder.check_weights(tmp_path, "steps")
