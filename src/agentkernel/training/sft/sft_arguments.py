"""What is TRL told of a fine-tuning?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentkernel.training import checkpoints
from agentkernel.training.device import in_bf16
from agentkernel.training.loading import MANY_WEIGHTS, BaseWeights
from agentkernel.training.sharding import allow_cpu_sharding, fsdp_arguments
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from trl import SFTConfig

BETA2 = 0.95
"""AdamW's second decay, as for GPT-3 (arXiv 2005.14165, appendix B)."""


def sft_arguments(
    settings: TrainingSettings, base: BaseWeights, out: Path, *, evaluates: bool, sharded: bool
) -> SFTConfig:
    """TRL's arguments, with checkpoints in `out`: `evaluates` where held-out rows are looked at,
    `sharded` where the weights of `base` will lie in parts."""
    from trl import SFTConfig

    sft, on_gpu = settings.sft, torch.cuda.is_available()
    large = base.parameters >= MANY_WEIGHTS
    arguments = SFTConfig(
        output_dir=str(checkpoints.folder_of(out)),
        per_device_train_batch_size=sft.batch,
        per_device_eval_batch_size=sft.batch,
        gradient_accumulation_steps=sft.accumulate,
        num_train_epochs=sft.epochs,
        max_steps=sft.most_steps or -1,
        learning_rate=sft.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=sft.warmup_share,
        weight_decay=sft.weight_decay,
        adam_beta2=BETA2,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if on_gpu else "adamw_torch",
        seed=sft.seed,
        data_seed=sft.seed,
        max_length=sft.window,
        packing=sft.packing,
        packing_strategy="bfd",
        bf16=in_bf16(sft.bf16),
        fp16=False,
        tf32=True if on_gpu and torch.cuda.get_device_capability() >= (8, 0) else None,
        gradient_checkpointing=large,
        use_cpu=not on_gpu,
        dataloader_num_workers=2 if on_gpu else 0,
        dataloader_pin_memory=on_gpu,
        dataloader_persistent_workers=on_gpu,
        # Else each batch waits for all that the GPU has still to do.
        accelerator_config={"non_blocking": on_gpu},
        save_strategy="steps",
        save_steps=sft.save_steps,
        save_total_limit=None,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=sft.save_steps if evaluates else None,
        logging_strategy="steps",
        logging_steps=1,
        # Looking for nan at each step waits for the GPU; the curve shows it as well.
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        **fsdp_arguments(sharded),
    )
    if sharded:
        allow_cpu_sharding()
    if arguments.n_gpu > 1 and arguments.parallel_mode.value == "not_distributed":
        # Several GPUs are for --gpus: one process would cut packed rows apart among them.
        arguments._n_gpu = 1
    return arguments


__all__ = ["sft_arguments"]
