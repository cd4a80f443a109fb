"""Shapes of decoder-only transformers: matrices, weight counts, and new models of a shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.training.settings import Lora, NewModel

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase


MANY_WEIGHTS = 1_000_000_000
"""From here on activations are computed twice rather than kept, several GPUs share the weights, and
these are saved in bf16."""
CONFIG = "config.json"
BIASED = {"llama": False, "mistral": False, "qwen2": True}
"""Model types of config.json that are read here -> whether query, key and value have a bias."""
KEYS = {
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "window": "max_position_embeddings",
}
"""A shape's fields -> what config.json calls them."""


class ModelShape(Frozen):
    """A transformer of the Llama kind: RMS norms, grouped queries, a gated MLP (SwiGLU). `tied`:
    the first and the last matrix are one; `biased`: query, key and value have a bias. `window` is
    in tokens, `source` says where the figures are from."""

    hidden: int = Field(ge=1)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    key_heads: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    window: int = Field(ge=1)
    head_size: int = Field(ge=1)
    tied: bool = False
    biased: bool = False
    source: str

    @property
    def query_width(self) -> int:
        """Numbers of all queries of a token."""
        return self.heads * self.head_size

    @property
    def key_width(self) -> int:
        """Numbers of all keys (or all values) of a token."""
        return self.key_heads * self.head_size

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the linear layers of one layer, under transformers' names."""
        return {
            "q_proj": (self.query_width, self.hidden),
            "k_proj": (self.key_width, self.hidden),
            "v_proj": (self.key_width, self.hidden),
            "o_proj": (self.hidden, self.query_width),
            "gate_proj": (self.intermediate, self.hidden),
            "up_proj": (self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }

    @property
    def matrix_weights(self) -> int:
        """Weights of the matrices of all layers."""
        return self.layers * sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def head_weights(self) -> int:
        """Weights of the last matrix."""
        return self.vocabulary * self.hidden

    @property
    def embedding_weights(self) -> int:
        """Weights of the first matrix, and of the last one where it is another."""
        return self.head_weights * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All weights: matrices, biases, norms, embeddings; a tied matrix counts once."""
        biases = self.query_width + 2 * self.key_width if self.biased else 0
        vectors = self.layers * (biases + 2 * self.hidden) + self.hidden
        return self.matrix_weights + vectors + self.embedding_weights

    def adapted(self, lora: Lora) -> list[tuple[int, int]]:
        """The matrices of a layer that get an adapter. "all-linear" leaves the last matrix of the
        model out, as PEFT does. Raises TrainingError where there is none."""
        found = [size for name, size in self.matrices.items() if _is_adapted(name, lora.modules)]
        if not found:
            raise TrainingError(
                f"sft.lora.modules {lora.modules!r} names no matrix. Expected some of "
                f"{', '.join(self.matrices)}, or all-linear. Next: "
                "-c sft.lora.modules=all-linear."
            )
        return found

    def adapter_parameters(self, lora: Lora) -> int:
        """Weights of two matrices [rank, columns] and [rows, rank] beside each adapted one (LoRA,
        arXiv 2106.09685, section 4.1)."""
        return self.layers * lora.rank * sum(sum(size) for size in self.adapted(lora))


PUBLISHED: dict[str, ModelShape] = {
    "Qwen/Qwen2.5-Coder-3B-Instruct": ModelShape(
        hidden=2048,
        layers=36,
        heads=16,
        key_heads=2,
        head_size=128,
        intermediate=11008,
        vocabulary=151_936,
        window=32_768,
        tied=True,
        biased=True,
        source="config.json on huggingface.co; its page: 3.09 B weights, 2.77 B in the layers",
    ),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(
        hidden=4096,
        layers=32,
        heads=32,
        key_heads=8,
        head_size=128,
        intermediate=14_336,
        vocabulary=128_256,
        window=131_072,
        source="config.json on huggingface.co, and arXiv 2407.21783, table 3",
    ),
}
"""Shapes of models that are named by a packaged configuration, by their name on the hub."""


def _is_adapted(name: str, modules: tuple[str, ...] | str) -> bool:
    """As PEFT reads it: one text is a pattern of whole paths, several are the ends of paths."""
    if modules == "all-linear" or name == modules:
        return True
    block = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
    path = f"model.layers.0.{block}.{name}"
    if not isinstance(modules, str):
        return any(path.endswith(f".{item}") for item in modules if item)
    try:
        return re.fullmatch(modules, path) is not None
    except re.error:
        return False


def new_shape(new: NewModel) -> ModelShape:
    """The shape of the model that is made from nothing: as many key heads as heads, tied."""
    return ModelShape(
        **new.model_dump(),
        key_heads=new.heads,
        head_size=max(new.hidden // new.heads, 1),
        tied=True,
        source="the configuration's own 'new'",
    )


def read_shape(folder: Path) -> ModelShape:
    """The shape that a folder's config.json says. Raises TrainingError for one that is not there,
    not whole or of a kind that is not known here."""
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}")
        kind = found.get("model_type")
        if kind not in BIASED:
            raise TrainingError(
                f"{str(path)!r} is of the type {kind!r}. Expected {', '.join(BIASED)}. Next: a "
                "configuration with 'new' of about its sizes."
            )
        sizes = {name: found[key] for name, key in KEYS.items()}
        head_size = found.get("head_dim") or int(sizes["hidden"]) // int(sizes["heads"])
        return ModelShape(
            **sizes,
            key_heads=found.get("num_key_value_heads") or sizes["heads"],
            head_size=head_size,
            tied=found.get("tie_word_embeddings", False),
            biased=BIASED[kind],
            source=str(path),
        )
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, ValidationError) as error:
        raise TrainingError(
            f"Cannot read a model's shape from {str(path)!r}: {type(error).__name__}: "
            f"{one_line(error)}. Expected a config.json of transformers. Next: name the folder of "
            "the whole weights."
        ) from error


def make_new(new: NewModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights in fp32, the same for the same `seed`; the first and the last
    matrix are one (tied), of as many rows as `tokenizer` has tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.hidden,
        intermediate_size=new.intermediate,
        num_hidden_layers=new.layers,
        num_attention_heads=new.heads,
        num_key_value_heads=new.heads,
        max_position_embeddings=new.window,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
