"""Construction of TRL's trainer for a fine-tuning, and attention inside packed documents.

TRL packs short rows end to end (best fit decreasing, arXiv 2404.10830) and says where each
begins (`cu_seq_lens_q`). Only the flash-attn package's kernels read that: transformers' own
sdpa builds a mask of all tokens of a batch by all of them. Here the documents go to torch's
varlen kernel on a GPU in half precision, and one after the other to sdpa elsewhere. Both are
exact.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from agentkernel.training import checkpoints
from agentkernel.training.curve import LossPoint, read_points
from agentkernel.training.decoding.llama import add_dropout
from agentkernel.training.folder import in_bf16
from agentkernel.training.model import (
    BaseWeights,
    allow_cpu_sharding,
    fsdp_arguments,
    lora_of,
    set_precision,
)
from agentkernel.training.model_shape import MANY_WEIGHTS
from agentkernel.training.settings import TrainingSettings
from agentkernel.training.sft.examples import Examples, as_dataset

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase
    from trl import SFTConfig

    from agentkernel.training.sft.trainer import TrainingCallback


NAME = "agentkernel_documents"
"""What a model's configuration calls it while it is trained; no saved model names it."""
HALF = (torch.float16, torch.bfloat16)
AMPERE = (8, 0)
"""The first compute capability that flash attention runs on (Dao, arXiv 2307.08691)."""


def register_attention() -> str:
    """Make it known to transformers; gives its name."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    return NAME


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Attention under a mask by any of torch's own kernels but cuDNN's, whose backward on Hopper
    gives nan for one width in 128 (pytorch issue 196678; torch 2.11 to 2.13 prefer it there)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sound = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(sound):
        yield


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **others: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention inside each document.

    `query` [1, heads, tokens, size], `key` and `value` [1, key heads, tokens, size];
    `cu_seq_lens_q` int32 [documents + 1], where each begins and the last ends; None: one document
    a row. Gives [1, tokens, heads, size], as transformers' attention functions do.
    """
    assert attention_mask is None, "packed rows have no padding"
    if cu_seq_lens_q is None:
        return _one(query, key, value, scaling, dropout).transpose(1, 2), None
    half = _half(query)
    if half is not None and _has_flash(query) and max_length_q is not None and dropout == 0.0:
        query, key, value = (item.to(half) for item in (query, key, value))
        return _varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling)[None], None
    ends = cu_seq_lens_q.tolist()
    parts = [
        _one(
            query[:, :, begin:end],
            key[:, :, begin:end],
            value[:, :, begin:end],
            scaling,
            dropout,
        )
        for begin, end in pairwise(ends)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    dropout: float,
) -> torch.Tensor:
    return scaled_dot_product_attention(
        query,
        key,
        value,
        dropout_p=dropout,
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _half(query: torch.Tensor) -> torch.dtype | None:
    """The 16-bit type to compute in: the tensor's own, or autocast's, which knows sdpa but not the
    varlen kernel (and the rotation of queries leaves them in fp32). None: all 32 bits."""
    if query.dtype in HALF:
        return query.dtype
    if not torch.is_autocast_enabled(query.device.type):
        return None
    wanted = torch.get_autocast_dtype(query.device.type)
    return wanted if wanted in HALF else None


def _has_flash(query: torch.Tensor) -> bool:
    return query.is_cuda and _is_ampere(query.device.index or 0)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_ampere(gpu: int) -> bool:
    return torch.cuda.get_device_capability(gpu) >= AMPERE


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    longest: int,
    scaling: float | None,
) -> torch.Tensor:
    """[tokens, heads, size] by torch's flash kernel for documents of different lengths."""
    from torch.nn.attention.varlen import varlen_attn

    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (item.repeat_interleave(groups, dim=1) for item in (key, value))
    size = query.shape[-1]
    room = -size % 8
    # The kernel divides by the root of the size that it sees; what a model scales by is made up.
    factor = 1.0 if scaling is None and not room else _factor(size, size + room, scaling)
    query = query if factor == 1.0 else query * factor
    # Not item[0], whose backward fills a whole tensor with zeros; nor padding by 0, which copies.
    query, key, value = (item.squeeze(0).transpose(0, 1) for item in (query, key, value))
    if room:
        query, key, value = (pad(item, (0, room)) for item in (query, key, value))
    causal: dict[str, Any] = {"window_size": (-1, 0)} if _has_window() else {"is_causal": True}
    found = varlen_attn(query, key, value, ends, ends, longest, longest, **causal)
    assert isinstance(found, torch.Tensor)
    return found[..., :size]


def _factor(size: int, padded: int, scaling: float | None) -> float:
    wanted = size**-0.5 if scaling is None else scaling
    factor = wanted * padded**0.5
    return 1.0 if math.isclose(factor, 1.0) else factor


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_window() -> bool:
    """Torch before 2.11 asked whether it is causal; since then how far to the left and right."""
    return "window_size" in _options()


@cache
def _options() -> frozenset[str]:
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)


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


def make_trainer(
    settings: TrainingSettings,
    base: BaseWeights,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    held_out: Examples,
    out: Path,
    *,
    sharded: bool,
) -> Any:
    """The trainer, which nobody watches yet, with checkpoints in `out`."""
    from transformers import PrinterCallback

    from agentkernel.training.sft.trainer import MOST_POINTS, PackedTrainer

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
    trainer.args.logging_steps = max(1, planned_steps(trainer) // MOST_POINTS)
    if sharded:
        set_precision(trainer)
    trainer.remove_callback(PrinterCallback)
    # A page about the model is ours to write: see training.json.
    trainer.create_model_card = lambda *names, **values: None
    return trainer


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
    points = read_points(out, LossPoint)
    watch.loss = next((item.loss for item in reversed(points) if item.loss is not None), None)
    held_out = (item.held_out_loss for item in reversed(points))
    watch.held_out_loss = next((loss for loss in held_out if loss is not None), None)


def read_state(trainer: Any, last: Path, *, weights: bool = True) -> None:
    """Put what a checkpoint knows of its step into the trainer, and its `weights`."""
    from transformers import TrainerState

    if weights:
        trainer._load_from_checkpoint(str(last))
    trainer.state = TrainerState.load_from_json(str(last / "trainer_state.json"))
