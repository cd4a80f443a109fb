"""How is TRL's trainer put together for a fine-tuning, and read back where its steps are done?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentkernel.training import checkpoints
from agentkernel.training.curve import read_points
from agentkernel.training.decoding.dropout import add_dropout
from agentkernel.training.evaluate.evaluate import Show
from agentkernel.training.loading import BaseWeights, lora_of
from agentkernel.training.ranks import Ranks
from agentkernel.training.sft.examples import Examples, as_dataset
from agentkernel.training.sft.sft_arguments import sft_arguments
from agentkernel.training.sharding import set_precision
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.training.sft.watch import Judge, StopRequest, TrainingCallback


def make_trainer(
    ranks: Ranks,
    sharded: bool,
    settings: TrainingSettings,
    base: BaseWeights,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    held_out: Examples,
    out: Path,
    whole: checkpoints.CheckpointRecord | None,
    stop: StopRequest,
    judge: Judge | None,
    times: int,
    show: Show,
    begin_s: float,
) -> tuple[Any, TrainingCallback]:
    """The trainer, and who watches it: it goes on from what is `whole`, ends where `stop` is asked
    to, and has checkpoints judged `times` times in all, the end included. `begin_s`: of
    time.monotonic(), when this call's time began."""
    from transformers import PrinterCallback

    from agentkernel.training.sft.sft_trainer import PackedTrainer
    from agentkernel.training.sft.watch import MOST_POINTS, TrainingCallback

    sft = settings.sft
    arguments = sft_arguments(settings, base, out, evaluates=bool(held_out.items), sharded=sharded)
    trainer = PackedTrainer(
        compiled=sft.compile and torch.cuda.is_available(),
        model=base.model,
        args=arguments,
        train_dataset=as_dataset(examples.items),
        eval_dataset=as_dataset(held_out.items) if held_out.items else None,
        processing_class=tokenizer,
        peft_config=None if base.has_adapter else lora_of(sft),
    )
    # On what learns: an adapter's part of a layer is left out with the layer's.
    add_dropout(trainer.model, sft.dropout)
    planned = planned_steps(trainer)
    trainer.args.logging_steps = max(1, planned // MOST_POINTS)
    watch = TrainingCallback(
        out,
        whole,
        stop,
        sft.most_minutes,
        show,
        judge,
        times,
        ranks,
        sharded=sharded,
        begin_s=begin_s,
    )
    if sft.most_minutes is not None:
        trainer.time_share = lambda: watch.rate_share
    if sharded:
        set_precision(trainer)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(watch)
    # A page about the model is ours to write: see training.json.
    trainer.create_model_card = lambda *names, **values: None
    return trainer, watch


def planned_steps(trainer: Any) -> int:
    """Optimizer steps in all."""
    if trainer.args.max_steps > 0:
        return int(trainer.args.max_steps)
    batches = len(trainer.get_train_dataloader())
    a_pass = max(-(-batches // int(trainer.args.gradient_accumulation_steps)), 1)
    return max(math.ceil(float(trainer.args.num_train_epochs) * a_pass), 1)


def read_back(trainer: Any, watch: TrainingCallback, last: Path, out: Path, sharded: bool) -> None:
    """No step is left, or no time, and only the result is not written: the trainer would add a
    step."""
    read_state(trainer, last, weights=not sharded)
    points = read_points(out)
    watch.loss = next((item.loss for item in reversed(points) if item.loss is not None), None)
    held_out = (item.held_out_loss for item in reversed(points))
    watch.held_out_loss = next((loss for loss in held_out if loss is not None), None)


def read_state(trainer: Any, last: Path, *, weights: bool = True) -> None:
    """Put what a checkpoint knows of its step into the trainer, and its `weights`."""
    from transformers import TrainerState

    if weights:
        trainer._load_from_checkpoint(str(last))
    trainer.state = TrainerState.load_from_json(str(last / "trainer_state.json"))


__all__ = ["make_trainer", "planned_steps", "read_back", "read_state"]
