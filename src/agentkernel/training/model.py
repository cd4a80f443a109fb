"""Weights of a training: loading, sharding over GPUs, and saving at the end.

Weights are new, whole, or under an adapter. They are sharded by FSDP2 (Zhao et al., arXiv
2304.11277; torch's `fully_shard`) through the trainer's own switch. A checkpoint then has one
file per rank, and one process reads the whole model from it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from agentkernel.agents.models.local_presets import LocalPreset, model_folder, parse_local
from agentkernel.agents.models.local_weights import best_dtype
from agentkernel.domain.errors import MissingDependency, ModelUnavailable, TrainingError, one_line
from agentkernel.training import checkpoints, folder
from agentkernel.training.checkpoints import CheckpointRecord
from agentkernel.training.curve import LossPoint, drop_points_after
from agentkernel.training.distributed import Ranks
from agentkernel.training.folder import Ended
from agentkernel.training.model_shape import MANY_WEIGHTS, make_new, new_shape
from agentkernel.training.settings import Say, SftSettings, TrainingSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


NEEDED = ("trl", "datasets", "peft", "accelerate")


@dataclass(frozen=True)
class BaseWeights:
    """The weights that a training begins with."""

    model: PreTrainedModel
    """With the adapter that is trained further, where the named model has one."""
    has_adapter: bool
    name: str | None
    """The whole weights below an adapter, as `local:` finds them; None for a new model."""

    @property
    def parameters(self) -> int:
        """All weights, trained or not; a tied matrix counts once, a packed one as it was."""
        return sum(_numbers(item) for item in self.model.parameters())


def _numbers(weight: torch.nn.Parameter) -> int:
    # Two 4-bit numbers lie in one byte, and the matrix has the shape of the bytes.
    packed = type(weight).__name__ == "Params4bit"
    return weight.numel() * 2 if packed else weight.numel()


def check_method(settings: TrainingSettings) -> None:
    """Raises TrainingError for an adapter on weights that nobody has."""
    if settings.model is None and settings.sft.method != "full":
        raise TrainingError(
            f"sft.method {settings.sft.method!r} puts an adapter on a model, and "
            f"{settings.name!r} makes a new one. Expected 'full'. Next: -c sft.method=full, or "
            "--model with weights to adapt."
        )


def check_packages(settings: SftSettings) -> None:
    """Raises MissingDependency, with the one line to install, where something is not here."""
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise MissingDependency(
            f"Training needs the package {lacking[0]}. Expected the extra train. "
            "Next: pip install '.[train]' in the clone."
        )
    if settings.method != "qlora":
        return
    if not torch.cuda.is_available():
        lacks = "a CUDA GPU"
    elif find_spec("bitsandbytes") is None:
        lacks = "the package bitsandbytes"
    else:
        return
    raise MissingDependency(
        f"sft.method 'qlora' needs {lacks}. Expected a CUDA GPU with bitsandbytes. "
        "Next: -c sft.method=lora, or 'pip install bitsandbytes' beside a GPU."
    )


def load_tokenizer(model: str) -> PreTrainedTokenizerBase:
    """The tokenizer of the whole weights that `model` names. Raises ModelUnavailable."""
    from transformers import AutoTokenizer

    folder = model_folder(parse_local(model).model)
    try:
        found = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers and tokenizers share no exception type
        raise ModelUnavailable(
            f"The tokenizer of {model!r} cannot be loaded: {one_line(error)}. Expected one that "
            "transformers knows, beside the weights. Next: see docs/models.md."
        ) from error
    if found.pad_token_id is None:
        found.pad_token = found.eos_token
    return found


def load_base(
    settings: TrainingSettings, tokenizer: PreTrainedTokenizerBase, attention: str
) -> BaseWeights:
    """The weights to train: in fp32 where all of them are (a step is smaller than what bf16 can
    tell apart), else in the GPU's 16-bit type or in 4 bits. `attention` names the function.

    An adapter that the named model has is trained further, or, where all weights are trained, put
    into them first. Raises ModelUnavailable.
    """
    sft = settings.sft
    if settings.model is None:
        assert settings.new is not None
        made = make_new(settings.new, tokenizer, sft.seed)
        made.set_attn_implementation(attention)
        return BaseWeights(made, has_adapter=False, name=None)
    preset = parse_local(settings.model)
    model = _whole(preset, sft, attention)
    if preset.adapter is None:
        return BaseWeights(model, has_adapter=False, name=_name(preset.model))
    tuned = _tuned(model, preset.adapter, train=sft.method != "full")
    if sft.method == "full":
        merged = tuned.merge_and_unload()
        # Below an adapter all weights stand still.
        merged.requires_grad_(True)
        return BaseWeights(merged, has_adapter=False, name=_name(preset.model))
    return BaseWeights(tuned, has_adapter=True, name=_name(preset.model))


def _name(model: str) -> str:
    """A folder's whole path, so that it is found from anywhere; a name on the hub as it is."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _whole(preset: LocalPreset, sft: SftSettings, attention: str) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = model_folder(preset.model)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device() if on_gpu else 0)
    device = device if on_gpu else torch.device("cpu")
    dtype = torch.float32 if sft.method == "full" else best_dtype(device)
    four = {}
    if sft.method == "qlora":
        # As in QLoRA (arXiv 2305.14314, section 3): NF4, the scales in 8 bits, products in 16.
        shape = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        four = {"quantization_config": shape, "device_map": {"": device}}
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            **four,
        )
    except Exception as error:  # transformers and safetensors share no exception type
        raise ModelUnavailable(
            f"Model {preset.model!r} cannot be loaded: {type(error).__name__}: {one_line(error)}. "
            "Expected a causal language model that transformers knows. Next: see docs/models.md."
        ) from error
    return model


def _tuned(model: PreTrainedModel, adapter: str, *, train: bool) -> Any:
    from peft import PeftModel

    folder = model_folder(adapter)
    try:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=train)
    except Exception as error:  # peft and safetensors share no exception type
        raise ModelUnavailable(
            f"Adapter {adapter!r} cannot be loaded: {type(error).__name__}: {one_line(error)}. "
            "Expected a PEFT adapter that was made for the model. Next: see docs/models.md."
        ) from error


def lora_of(settings: SftSettings) -> LoraConfig | None:
    """The adapter to add; None where all weights are trained."""
    if settings.method == "full":
        return None
    from peft import LoraConfig

    lora = settings.lora
    modules = lora.modules if isinstance(lora.modules, str) else list(lora.modules)
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=modules,
        bias="none",
        task_type="CAUSAL_LM",
    )


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
        assert settings.new is not None
        return new_shape(settings.new).parameters
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


def check_same(whole: CheckpointRecord, ranks: Ranks) -> None:
    """Raises TrainingError where a checkpoint is of another number of ranks: a step is of another
    batch then, and what each rank drew is not known; or where its files are of another kind."""
    if whole.ranks != ranks.count:
        raise TrainingError(
            f"The checkpoint at step {whole.step} is of a training on {whole.ranks} "
            f"{'processes' if whole.ranks > 1 else 'process'}, and this is one on {ranks.count}. "
            f"Expected as many: a step is of another batch else. Next: --gpus {whole.ranks}, or "
            "another --out."
        )
    if whole.sharded != ranks.sharded:
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
    out: Path, ranks: Ranks, say: Say
) -> tuple[Path | None, CheckpointRecord | None]:
    """The checkpoint to go on from; what lies behind it is left out. Raises TrainingError."""
    last, whole = checkpoints.resume_point(checkpoints.make_checkpoint_folder(out), say)
    if whole is not None:
        check_same(whole, ranks)
    drop_points_after(out, whole.step if whole else 0, LossPoint)
    return last, whole


def rows_a_step(settings: TrainingSettings, ranks: Ranks) -> int:
    """Rows of a step, packed or not."""
    return settings.sft.batch * settings.sft.accumulate * ranks.count


def ranks_note(settings: TrainingSettings, ranks: Ranks) -> str:
    """What is said of several ranks behind the device's name; "" of one."""
    if ranks.count == 1:
        return ""
    parts = ", weights and optimizer states in parts" if ranks.sharded else ""
    return f" x {ranks.count}, a batch of {rows_a_step(settings, ranks)} rows in all{parts}"
