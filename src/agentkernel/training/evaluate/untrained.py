"""What were the weights before anybody trained them? The baseline that shows what training gave."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch

from agentkernel.agents.models.local_weights import CausalModel, Weights, best_dtype
from agentkernel.domain.errors import TrainingError
from agentkernel.training.folder import read_record
from agentkernel.training.new_model import make_new
from agentkernel.training.training import NewModel


def new_model_settings(folder: Path) -> NewModel:
    """What the training in `folder` made new. Raises TrainingError where it made nothing."""
    record = read_record(folder)
    if record is None or record.settings.new is None:
        why = "holds no training" if record is None else f"began with {record.settings.model!r}"
        raise TrainingError(
            f"{str(folder)!r} {why}. Expected a model that was made new. Next: name such a folder, "
            "or ask the model that it began with."
        )
    return record.settings.new


def base_model(folder: Path) -> Weights:
    """The model that the training in `folder` began with, with its tokenizer: new weights of the
    same seed. Raises TrainingError where it did not begin with new ones."""
    from transformers import AutoTokenizer

    new, record = new_model_settings(folder), read_record(folder)
    assert record is not None
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    model = make_new(new, tokenizer, record.settings.sft.seed).to(best_dtype(device))  # type: ignore[arg-type]
    model.train(False)
    ends = frozenset({int(tokenizer.eos_token_id)})
    return Weights(cast("CausalModel", model), tokenizer, device, ends, new.window)


__all__ = ["base_model", "new_model_settings"]
