"""Loading of a local model with its adapter, quantization and tokenizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import torch

from agentkernel.agents.models.local_presets import LocalPreset, Quantization, model_folder
from agentkernel.domain.errors import MissingDependency, ModelUnavailable, one_line
from agentkernel.runtime import gpu_lock

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList
    from transformers.generation.streamers import BaseStreamer


class CausalModel(Protocol):
    """What is used of a causal language model, with or without an adapter."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...

    def buffers(self) -> Iterator[torch.Tensor]: ...

    def to(self, device: torch.device | str) -> object: ...

    def generate(
        self,
        input_ids: torch.Tensor,
        *,
        attention_mask: torch.Tensor,
        generation_config: GenerationConfig,
        stopping_criteria: StoppingCriteriaList,
        streamer: BaseStreamer,
    ) -> torch.Tensor:
        """The prompt with what was written to it, int64 [samples, tokens]."""
        ...


@dataclass(frozen=True)
class Weights:
    """A model in memory with its tokenizer, and the device that it works on."""

    model: CausalModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    ends: frozenset[int]
    """The tokens that end a text."""
    window: int
    """Tokens of prompt and answer together that the model can see."""

    @property
    def on_device(self) -> bool:
        """False while the weights wait in the machine's own memory."""
        return next(self.model.parameters()).device.type == self.device.type

    @property
    def size_bytes(self) -> int:
        """What parameters and buffers take, wherever they lie."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def load_weights(preset: LocalPreset) -> Weights:
    """Model, adapter and tokenizer of `preset`, from safetensors and without code of the model's.

    The weights lie in the machine's own memory, except in 4 bits, which only a GPU can make.
    Raises ModelUnavailable or MissingDependency.
    """
    folder = model_folder(preset.model)
    adapter = model_folder(preset.adapter) if preset.adapter else None
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    _check_packages(preset.quantization, device, adapter)
    try:
        return _read(folder, adapter, preset.quantization, device)
    except Exception as error:  # transformers, peft and safetensors share no exception type
        named = preset.model + (f"+{preset.adapter}" if preset.adapter else "")
        raise ModelUnavailable(
            f"Model {named!r} cannot be loaded: {type(error).__name__}: {one_line(error)}. "
            "Expected a causal language model that transformers knows, with a tokenizer, and an "
            "adapter made for it. Next: see docs/models.md."
        ) from error


def _read(
    folder: Path, adapter: Path | None, quantization: Quantization, device: torch.device
) -> Weights:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    keywords = _four_bits(device) if quantization == "4bit" else {}
    with gpu_lock.shared() if keywords else nullcontext(), _without_bars():
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=best_dtype(device),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            **keywords,
        )
    ends = _ends(model.generation_config, tokenizer)
    window = int(model.config.get_text_config().max_position_embeddings)
    # A question says how it is sampled: nothing beside the weights may add to that.
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    # Its own types leave open what generate gives; without return_dict it is a tensor.
    causal = cast("CausalModel", model.eval())  # type: ignore[no-untyped-call]
    if adapter is not None:
        causal = _with_adapter(causal, adapter)
    return Weights(causal, tokenizer, device, ends, window)


def _with_adapter(model: CausalModel, adapter: Path) -> CausalModel:
    from peft import PeftModel

    there = next(model.parameters()).device
    with warnings.catch_warnings():
        # What one library tells another about its next release is not for the user.
        warnings.simplefilter("ignore", FutureWarning)
        # Left alone, peft reads an adapter onto the GPU, where somebody may be timing.
        tuned: CausalModel = PeftModel.from_pretrained(
            model, str(adapter), is_trainable=False, torch_device=str(there)
        ).eval()
    return tuned


@contextmanager
def _without_bars() -> Iterator[None]:
    """The run has a display of its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _four_bits(device: torch.device) -> dict[str, object]:
    from transformers import BitsAndBytesConfig

    shape = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=best_dtype(device)
    )
    return {"quantization_config": shape, "device_map": {"": device}}


def best_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the GPU has it, else float16 there and float32 on a CPU."""
    if device.type != "cuda":
        return torch.float32
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16


def _ends(beside: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """A chat model may have several: its tokenizer names one, the file beside its weights all."""
    known = beside.eos_token_id if beside else None
    several = known if isinstance(known, list) else [known]
    return frozenset(token for token in (*several, tokenizer.eos_token_id) if token is not None)


def _check_packages(quantization: Quantization, device: torch.device, adapter: Path | None) -> None:
    from importlib.util import find_spec

    if adapter is not None and find_spec("peft") is None:
        raise MissingDependency(
            f"The adapter {str(adapter)!r} needs the package peft. Expected the extra local. "
            "Next: pip install '.[local]' in the clone."
        )
    if quantization == "none":
        return
    lacking = [name for name in ("bitsandbytes", "accelerate") if find_spec(name) is None]
    if device.type != "cuda" or lacking:
        without = "a CUDA GPU" if device.type != "cuda" else f"the package {lacking[0]}"
        raise MissingDependency(
            f"Quantization '4bit' needs {without}. Expected a CUDA GPU with bitsandbytes and "
            "accelerate. Next: 'quantization: none', or install them beside a GPU."
        )
