"""How do weights come into a trainer: new, whole, or under an adapter?"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentkernel.agents.models.local_files import model_folder
from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_weights import best_dtype
from agentkernel.domain.errors import MissingDependency, ModelUnavailable, TrainingError, one_line
from agentkernel.training.training import SftSettings, TrainingSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NEEDED = ("trl", "datasets", "peft", "accelerate")
MANY_WEIGHTS = 1_000_000_000
"""From here on activations are computed twice rather than kept, and weights are saved in bf16."""


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
            f"Training needs the package {lacking[0]}. Expected agentkernel[train]. "
            "Next: pip install 'agentkernel[train]'."
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
        from agentkernel.training.new_model import make_new

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


__all__ = [
    "MANY_WEIGHTS",
    "BaseWeights",
    "check_method",
    "check_packages",
    "load_base",
    "load_tokenizer",
    "lora_of",
]
