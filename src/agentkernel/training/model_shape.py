"""Shapes of decoder-only transformers: matrices, weight counts, and new models of a shape.

A shape comes from a folder's `config.json`, from the settings of a new model, or from a table
of published models. A new model is a Llama with random fp32 weights, the same for the same
seed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.training.settings import Lora, NewModel

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase


CONFIG = "config.json"
BIASED: dict[str, bool] = {"llama": False, "mistral": False, "qwen2": True}
"""Model types of config.json that are read here -> whether query, key and value have a bias."""


class Matrix(NamedTuple):
    """A linear layer's weight, [rows, columns]."""

    name: str
    rows: int
    columns: int

    @property
    def weights(self) -> int:
        """How many numbers it holds."""
        return self.rows * self.columns


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
    def matrices(self) -> tuple[Matrix, ...]:
        """The linear layers of one layer, under transformers' names."""
        return (
            Matrix("q_proj", self.query_width, self.hidden),
            Matrix("k_proj", self.key_width, self.hidden),
            Matrix("v_proj", self.key_width, self.hidden),
            Matrix("o_proj", self.hidden, self.query_width),
            Matrix("gate_proj", self.intermediate, self.hidden),
            Matrix("up_proj", self.intermediate, self.hidden),
            Matrix("down_proj", self.hidden, self.intermediate),
        )

    @property
    def layer_matrix_weights(self) -> int:
        """Weights of one layer's matrices."""
        return sum(item.weights for item in self.matrices)

    @property
    def layer_weights(self) -> int:
        """All weights of one layer: matrices, biases, two norms."""
        biases = self.query_width + 2 * self.key_width if self.biased else 0
        return self.layer_matrix_weights + biases + 2 * self.hidden

    @property
    def embedding_weights(self) -> int:
        """Weights of the first matrix, and of the last one where it is another."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All weights; a tied matrix counts once."""
        return self.layers * self.layer_weights + self.embedding_weights + self.hidden

    @property
    def multiplied(self) -> int:
        """Weights that each token is multiplied with: the matrices of all layers and the last one.
        Looking a token up in the first is no product (arXiv 2001.08361, section 2.1)."""
        return self.layers * self.layer_matrix_weights + self.vocabulary * self.hidden

    def adapted(self, lora: Lora) -> tuple[Matrix, ...]:
        """The matrices of a layer that get an adapter. "all-linear" leaves the last matrix of the
        model out, as PEFT does. Raises TrainingError where there is none."""
        found = tuple(item for item in self.matrices if _is_adapted(item.name, lora.modules))
        if not found:
            raise TrainingError(
                f"sft.lora.modules {lora.modules!r} names no matrix. Expected some of "
                f"{', '.join(item.name for item in self.matrices)}, or all-linear. Next: "
                "-c sft.lora.modules=all-linear."
            )
        return found

    def adapter_parameters(self, lora: Lora) -> int:
        """Weights of two matrices [rank, columns] and [rows, rank] beside each adapted one (LoRA,
        arXiv 2106.09685, section 4.1)."""
        return (
            self.layers * lora.rank * sum(item.rows + item.columns for item in self.adapted(lora))
        )


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
        hidden=new.hidden,
        layers=new.layers,
        heads=new.heads,
        key_heads=new.heads,
        head_size=max(new.hidden // new.heads, 1),
        intermediate=new.intermediate,
        vocabulary=new.vocabulary,
        window=new.window,
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
        return _shape_of(found, biased=BIASED[kind], source=str(path))
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, ValidationError) as error:
        raise TrainingError(
            f"Cannot read a model's shape from {str(path)!r}: {type(error).__name__}: "
            f"{one_line(error)}. Expected a config.json of transformers. Next: name the folder of "
            "the whole weights."
        ) from error


def _shape_of(found: dict[str, object], *, biased: bool, source: str) -> ModelShape:
    heads = found["num_attention_heads"]
    values = {
        "hidden": found["hidden_size"],
        "layers": found["num_hidden_layers"],
        "heads": heads,
        "key_heads": found.get("num_key_value_heads") or heads,
        "intermediate": found["intermediate_size"],
        "vocabulary": found["vocab_size"],
        "window": found["max_position_embeddings"],
        "tied": found.get("tie_word_embeddings", False),
        "biased": biased,
        "source": source,
    }
    size = found.get("head_dim")
    if size is None:
        size = int(str(found["hidden_size"])) // int(str(heads))
    return ModelShape.model_validate({**values, "head_size": size})


def make_new(new: NewModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights in fp32, the same for the same `seed`; the first and the last
    matrix are one (tied), of as many rows as `tokenizer` has tokens.

    Raises TrainingError where the heads do not divide the hidden size into even parts.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if new.hidden % (2 * new.heads):
        raise TrainingError(
            f"A hidden size of {new.hidden} does not fall into {new.heads} heads of an even size. "
            "Expected a multiple of twice new.heads. Next: another new.hidden or new.heads."
        )
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


def parameters_of(new: NewModel, vocabulary: int | None = None) -> int:
    """How many weights `make_new` makes, without making them; a tied matrix counts once."""
    layer = 4 * new.hidden**2 + 3 * new.hidden * new.intermediate + 2 * new.hidden
    embedding = (new.vocabulary if vocabulary is None else vocabulary) * new.hidden
    return embedding + new.layers * layer + new.hidden
