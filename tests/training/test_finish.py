"""What is left of a training that ends?"""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from agentkernel.training import checkpoints
from agentkernel.training import model as ending
from agentkernel.training.model import BaseWeights, drop_checkpoints, save_trained
from agentkernel.training.model_shape import make_new
from agentkernel.training.settings import TrainingSettings
from agentkernel.training.sft.examples import make_tokenizer
from tests.training.rl.stand_in import TINY, settings
from tests.training.training_rows import problem


@pytest.mark.parametrize(
    ("many", "bf16", "kept"),
    [(1, True, "torch.bfloat16"), (1, False, "torch.float32"), (10**9, True, "torch.float32")],
)
def test_many_weights_are_saved_in_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, bf16: bool, kept: str
) -> None:
    monkeypatch.setattr(ending, "MANY_WEIGHTS", many)
    tokenizer = make_tokenizer([problem(0)], TINY.vocabulary, TINY.window)
    model = make_new(TINY, tokenizer, 0)
    base, chosen = BaseWeights(model, has_adapter=False, name=None), in_full(settings())
    save_trained(tmp_path, model, tokenizer, base, chosen, bf16=bf16)
    weights = load_file(tmp_path / "model.safetensors")
    assert {str(item.dtype) for item in weights.values()} == {kept}
    assert "model: ." in (tmp_path / "agentkernel.yaml").read_text()


def in_full(chosen: TrainingSettings) -> TrainingSettings:
    return chosen.evolve(sft=chosen.sft.evolve(method="full"))


def test_checkpoints_go_and_nothing_else(tmp_path: Path) -> None:
    (checkpoints.make_checkpoint_folder(tmp_path) / "checkpoint-3").mkdir()
    (tmp_path / "training.json").write_text("{}")
    drop_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["training.json"]
    # Nothing is there to go: that is no mistake.
    drop_checkpoints(tmp_path)
