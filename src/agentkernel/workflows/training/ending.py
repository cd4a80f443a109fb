"""What does a training say, keep and throw away when it ends?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentkernel.domain.training import TrainingSettings
from agentkernel.workflows.training import checkpoints, folder
from agentkernel.workflows.training.loading import MANY_WEIGHTS, Base

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def ended_words(step: int, planned: int) -> str:
    """What is said where a signal ended it after `step` of `planned` steps."""
    return f"ended after step {step} of {planned}; the same call goes on"


def save_trained(
    out: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    base: Base,
    settings: TrainingSettings,
    *,
    bf16: bool,
) -> None:
    """Put `model`, which began as `base`, into `out` as `local:` loads it: all weights, or the
    adapter alone. Many weights that were computed with in `bf16` are saved so. Raises OutputError.
    """
    whole = settings.sft.method == "full"
    if whole and base.parameters >= MANY_WEIGHTS and bf16:
        model = model.to(torch.bfloat16)  # type: ignore[arg-type]
    folder.save_weights(out, model, tokenizer, None if whole else base.name, settings.sampling)


def drop_checkpoints(out: Path) -> None:
    """Remove all checkpoints of a training that is finished."""
    # Nothing goes on from here: what a step needs is three times the weights and more.
    shutil.rmtree(checkpoints.folder_of(out), ignore_errors=True)


__all__ = ["drop_checkpoints", "ended_words", "save_trained"]
