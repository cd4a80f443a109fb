"""When do weights, gradients and optimizer states lie in parts on several GPUs, and how do they
become one model again?

FSDP2 (Zhao et al., arXiv 2304.11277; torch's `fully_shard`), through the trainer's own switch.
A checkpoint then has a file a rank, and the whole model is read from a checkpoint by one process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentkernel.agents.models.local_files import model_folder
from agentkernel.agents.models.local_presets import parse_local
from agentkernel.domain.errors import ModelUnavailable, TrainingError, one_line
from agentkernel.training import checkpoints, folder
from agentkernel.training.checkpoints import CheckpointRecord
from agentkernel.training.curve import drop_points_after
from agentkernel.training.loading import MANY_WEIGHTS
from agentkernel.training.ranks import Ranks
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = "pytorch_model_fsdp_0"
"""Where in a checkpoint accelerate puts the weights (`FSDP_MODEL_NAME`, model 0)."""
RAM_EFFICIENT = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
"""By these names transformers asks whether only the first rank of a machine reads weights."""


def is_sharded(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Whether all weights are trained by several ranks, and are many or are meant to lie in parts.

    Raises TrainingError for parts of an adapter's model, ModelUnavailable.
    """
    shard, method = settings.sft.shard, settings.sft.method
    if shard == "full" and method != "full":
        raise TrainingError(
            f"sft.shard 'full' puts parts of all weights on each GPU, and sft.method {method!r} "
            "trains an adapter. Expected sft.method 'full'. Next: -c sft.shard=auto, or "
            "-c sft.method=full."
        )
    if ranks.count == 1 or shard == "none" or method != "full":
        return False
    return shard == "full" or parameter_count(settings) >= MANY_WEIGHTS


def parameter_count(settings: TrainingSettings) -> int:
    """How many weights the model has, without loading them. Raises ModelUnavailable."""
    if settings.model is None:
        from agentkernel.training.new_model import parameters_of

        assert settings.new is not None
        return parameters_of(settings.new)
    from transformers import AutoConfig

    name = parse_local(settings.model).model
    try:
        config = AutoConfig.from_pretrained(
            model_folder(name), local_files_only=True, trust_remote_code=False
        )
        return sum(item.numel() for item in _empty(config).parameters())
    except ModelUnavailable:
        raise
    except Exception as error:  # transformers has no exception type of its own
        raise ModelUnavailable(
            f"Model {name!r} cannot be loaded: {type(error).__name__}: {one_line(error)}. "
            "Expected a causal language model that transformers knows. Next: see docs/models.md."
        ) from error


def _empty(config: Any) -> PreTrainedModel:
    """The model without numbers: no memory is taken."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        found: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config
        )
    return found


@contextmanager
def sharded_loading(sharded: bool) -> Iterator[None]:
    """Where weights will lie in parts, one rank of a machine reads them, and the others have an
    empty model: eight copies of an 8B in fp32 are 256 GB."""
    before = {name: os.environ.get(name) for name in RAM_EFFICIENT}
    if sharded:
        os.environ.update(RAM_EFFICIENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def fsdp_arguments(sharded: bool) -> dict[str, Any]:
    """What the trainer's arguments say of it."""
    if not sharded:
        return {}
    config = {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": True,
        "cpu_ram_efficient_loading": True,
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    return {"fsdp": True, "fsdp_config": config}


def allow_cpu_sharding() -> None:
    """Shard on CPUs as well: torch can, and accelerate only asks what kind of machine it is. To be
    called once there are arguments, and before there is a trainer."""
    from accelerate import PartialState  # type: ignore[import-untyped]
    from accelerate.utils import DistributedType  # type: ignore[import-untyped]

    state = PartialState._shared_state
    if state.get("distributed_type") == DistributedType.MULTI_CPU:
        state["distributed_type"] = DistributedType.MULTI_GPU


def set_precision(trainer: Any) -> None:
    """Products in the trainer's 16-bit type; gradients are summed over the ranks in fp32, and the
    loss stays in fp32. (accelerate would have both in 16 bits.)"""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    plugin = trainer.accelerator.state.fsdp_plugin
    half = torch.bfloat16 if trainer.args.bf16 else None
    plugin.mixed_precision_policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=torch.float32
    )


def check_same(whole: CheckpointRecord, ranks: Ranks, sharded: bool) -> None:
    """Raises TrainingError where a checkpoint is of another number of ranks: a step is of another
    batch then, and what each rank drew is not known; or where its files are of another kind."""
    if whole.ranks != ranks.count:
        raise TrainingError(
            f"The checkpoint at step {whole.step} is of a training on {whole.ranks} "
            f"{'processes' if whole.ranks > 1 else 'process'}, and this is one on {ranks.count}. "
            f"Expected as many: a step is of another batch else. Next: --gpus {whole.ranks}, or "
            "another --out."
        )
    if whole.sharded != sharded:
        was, now = ("'full'", "'none'") if whole.sharded else ("'none'", "'full'")
        raise TrainingError(
            f"The checkpoint at step {whole.step} was written with sft.shard {was}, and this "
            f"training has {now}. Expected the same. Next: -c sft.shard={was.strip(chr(39))}, or "
            "another --out."
        )


def gathered_model(checkpoint: Path, like: Any) -> PreTrainedModel:
    """The model of a checkpoint in parts, in this process's own memory; `like` is any model of its
    shape."""
    from torch.distributed import checkpoint as parts

    model = _empty(like.config)
    dtype = like.dtype
    weights = {
        name: torch.empty(item.shape, dtype=dtype if item.is_floating_point() else item.dtype)
        for name, item in model.state_dict().items()
    }
    place = str(checkpoint / WEIGHTS)
    parts.load(  # type: ignore[attr-defined]
        {"model": weights}, checkpoint_id=place, no_dist=True
    )
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    model.generation_config = like.generation_config
    return model


@contextmanager
def readable_checkpoint(
    checkpoint: Path,
    out: Path,
    like: Any,
    tokenizer: PreTrainedTokenizerBase,
    settings: TrainingSettings,
) -> Iterator[Path]:
    """A folder that `local:` loads, for as long as a checkpoint in parts is judged."""
    place = out / ".judged.tmp"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        model = gathered_model(checkpoint, like)
        folder.save_weights(place, model, tokenizer, None, settings.sampling)
        del model
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def readable_folder(
    out: Path,
    like: Any,
    tokenizer: PreTrainedTokenizerBase,
    settings: TrainingSettings,
    sharded: bool,
) -> Callable[[Path], AbstractContextManager[Path]]:
    """How a checkpoint becomes a folder that `local:` loads: it is one unless it is in parts."""
    if not sharded:
        return nullcontext
    return lambda place: readable_checkpoint(place, out, like, tokenizer, settings)


def resume_checkpoint(
    out: Path, ranks: Ranks, sharded: bool, say: Callable[[str], None]
) -> tuple[Path | None, CheckpointRecord | None]:
    """The checkpoint to go on from; what lies behind it is left out. Raises TrainingError."""
    last, whole = checkpoints.resume_point(checkpoints.make_checkpoint_folder(out), say)
    if whole is not None:
        check_same(whole, ranks, sharded)
    drop_points_after(out, whole.step if whole else 0)
    return last, whole


def rows_a_step(settings: TrainingSettings, ranks: Ranks) -> int:
    """Rows of a step, packed or not."""
    return settings.sft.batch * settings.sft.accumulate * ranks.count


def ranks_note(settings: TrainingSettings, ranks: Ranks, sharded: bool) -> str:
    """What is said of several ranks behind the device's name; "" of one."""
    if ranks.count == 1:
        return ""
    parts = ", weights and optimizer states in parts" if sharded else ""
    return f" x {ranks.count}, a batch of {rows_a_step(settings, ranks)} rows in all{parts}"


__all__ = [
    "allow_cpu_sharding",
    "check_same",
    "fsdp_arguments",
    "gathered_model",
    "is_sharded",
    "parameter_count",
    "ranks_note",
    "readable_checkpoint",
    "readable_folder",
    "resume_checkpoint",
    "rows_a_step",
    "set_precision",
    "sharded_loading",
]
