"""What does a fine-tuning write of itself, beside its weights?"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkernel.runtime.versions import installed_versions
from agentkernel.training import folder
from agentkernel.training.device import device_name, precision_of
from agentkernel.training.folder import Record
from agentkernel.training.loading import BaseWeights
from agentkernel.training.sft.examples import Examples
from agentkernel.training.sft.sft_rows import SftRows
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from agentkernel.training.sft.watch import TrainingCallback

PACKAGES = ("trl", "transformers", "peft", "accelerate", "datasets", "tokenizers")


def record_of(
    settings: TrainingSettings,
    data: Path,
    rows: SftRows,
    examples: Examples,
    base: BaseWeights,
    trainer: Any,
    watch: TrainingCallback,
    planned: int,
) -> Record:
    """What was trained until now; the hashes of the data are for the caller to add."""
    return Record(
        name=settings.name,
        ended=watch.ended,
        settings=settings,
        data=str(data),
        data_sha256="",
        card_sha256=folder.card_hash(data),
        older_sha256=None,
        parameters=base.parameters,
        trained_parameters=sum(
            item.numel() for item in trainer.model.parameters() if item.requires_grad
        ),
        steps=trainer.state.global_step,
        planned_steps=planned,
        epochs=round(trainer.state.epoch or 0.0, 4),
        rows=len(examples.items),
        too_long=examples.too_long,
        replayed=rows.replayed,
        tokens=watch.tokens,
        tokens_a_pass=examples.tokens,
        device=device_name(),
        precision=precision_of(settings.sft.bf16),
        seconds=round(watch.seconds, 2),
        loss=watch.loss,
        held_out_loss=watch.held_out_loss,
        versions=installed_versions(),
        packages={name: version(name) for name in PACKAGES},
    )


def sft_title(record: Record) -> str:
    """What stands over the curve."""
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, {record.device}"


__all__ = ["record_of", "sft_title"]
