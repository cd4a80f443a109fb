"""What does a training say, keep and throw away when it ends?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from agentkernel.training import checkpoints, folder
from agentkernel.training.folder import Ended
from agentkernel.training.loading import MANY_WEIGHTS, BaseWeights
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def interrupted_message(step: int, planned: int) -> str:
    """What is said where a signal ended it after `step` of `planned` steps."""
    return f"ended after step {step} of {planned}; the same call goes on"


class TimedRecord(Protocol):
    """What a record says of a training's time."""

    @property
    def ended(self) -> Ended: ...
    @property
    def seconds(self) -> float: ...


def is_time_spent(record: TimedRecord, before: float | None, most_minutes: float | None) -> bool:
    """Whether a training ended by time, with `before` as its most minutes, and has none left."""
    if record.ended != "minutes" or most_minutes is None:
        return False
    # The clock of another rank may have ended it, a moment before the first one's.
    return record.seconds >= 60 * most_minutes or (before or 0.0) >= most_minutes


def is_time_spent_at(
    whole: checkpoints.CheckpointRecord | None, most_minutes: float | None
) -> bool:
    """Whether there was no time left after a checkpoint."""
    return whole is not None and most_minutes is not None and whole.seconds >= 60 * most_minutes


def already_done_message(step: int, planned: int) -> str:
    """What is said where an earlier call did all that there are steps or time for."""
    if step >= planned:
        return f"all {step} steps were done before"
    return f"the time was up before, after step {step} of {planned}; more minutes go on"


def save_trained(
    out: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    base: BaseWeights,
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


__all__ = [
    "already_done_message",
    "drop_checkpoints",
    "interrupted_message",
    "is_time_spent",
    "is_time_spent_at",
    "save_trained",
]
