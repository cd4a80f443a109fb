"""Are weights counted as the models themselves have them?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentkernel.domain.errors import TrainingError
from agentkernel.training.model_shape import (
    PUBLISHED,
    ModelShape,
    read_shape,
)
from agentkernel.training.settings import Lora

QWEN = PUBLISHED["Qwen/Qwen2.5-Coder-3B-Instruct"]
LLAMA = PUBLISHED["meta-llama/Llama-3.1-8B-Instruct"]
SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def made(kind: str, device: str, **sizes: Any) -> Any:
    """What transformers makes of these sizes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    build: Any = AutoModelForCausalLM.from_config
    with torch.device(device):
        return build(AutoConfig.for_model(kind, **sizes))


def test_a_shape_of_a_few_weights_counted_by_hand() -> None:
    shape = ModelShape(
        hidden=4,
        layers=2,
        heads=2,
        key_heads=1,
        head_size=2,
        intermediate=6,
        vocabulary=10,
        window=8,
        tied=True,
        source="",
    )
    assert shape.matrix_weights == 2 * (16 + 8 + 8 + 16 + 3 * 24)
    assert shape.head_weights == 40
    assert shape.parameters == 2 * 128 + 10 * 4 + 4
    assert shape.evolve(tied=False).parameters == 340
    assert shape.evolve(biased=True).parameters == 300 + 2 * (4 + 2 + 2)
    every = 2 * ((4 + 4) + 2 * (2 + 4) + (4 + 4) + 3 * (4 + 6))
    assert shape.adapter_parameters(Lora(rank=3)) == 3 * every
    assert shape.adapter_parameters(Lora(rank=3, modules=("q_proj", "down_proj"))) == 3 * 2 * 18
    assert shape.adapter_parameters(Lora(rank=3, modules="k_proj")) == 3 * 2 * 6
    assert shape.adapter_parameters(Lora(rank=3, modules=r".*\.k_proj")) == 3 * 2 * 6
    assert shape.adapter_parameters(Lora(rank=3, modules=("self_attn.k_proj",))) == 3 * 2 * 6
    for nothing in (("c_attn",), "c_attn", "("):
        with pytest.raises(TrainingError, match="names no matrix"):
            shape.adapter_parameters(Lora(modules=nothing))


def test_the_published_models_have_the_weights_that_their_pages_say() -> None:
    assert round(QWEN.parameters / 1e9, 2) == 3.09
    assert round((QWEN.parameters - QWEN.head_weights) / 1e9, 2) == 2.77
    assert LLAMA.parameters == 8_030_261_248


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
def test_a_folder_has_the_weights_that_transformers_makes(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    model = made(kind, "meta", tie_word_embeddings=tied, **SMALL)
    model.config.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert shape.parameters == sum(item.numel() for item in model.parameters())
    assert (shape.window, shape.tied) == (64, tied)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_shape_is_what_transformers_makes_of_its_sizes(name: str) -> None:
    shape = PUBLISHED[name]
    model = made(
        "qwen2" if shape.biased else "llama",
        "meta",
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )
    assert shape.parameters == sum(item.numel() for item in model.parameters())
    weights = {
        part: item.shape
        for part, item in model.model.layers[0].named_parameters()
        if item.dim() == 2
    }
    found = {part.split(".")[1]: tuple(size) for part, size in weights.items()}
    assert found == shape.matrices


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_has_the_weights_that_peft_makes() -> None:
    peft = pytest.importorskip("peft")
    model = made("llama", "cpu", **SMALL)
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model, config)
    trained = sum(item.numel() for item in tuned.parameters() if item.requires_grad)
    shape = ModelShape(
        hidden=48,
        layers=3,
        heads=6,
        key_heads=2,
        head_size=8,
        intermediate=80,
        vocabulary=100,
        window=64,
        source="",
    )
    assert shape.adapter_parameters(Lora(rank=4)) == trained


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "FileNotFoundError"),
        ("{", "JSONDecodeError"),
        ("[]", "holds a list"),
        (json.dumps({"model_type": "gpt2"}), "'gpt2'"),
        (json.dumps({"model_type": "llama"}), "num_attention_heads"),
        (json.dumps({"model_type": "llama", **SMALL, "hidden_size": "wide"}), "wide"),
        (json.dumps({"model_type": "llama", **SMALL, "num_attention_heads": 0}), "Zero"),
        (json.dumps({"model_type": "llama", **SMALL, "vocab_size": -3}), "vocabulary"),
    ],
)
def test_a_folder_that_says_no_shape_is_an_error_of_one_line(
    text: str | None, said: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(TrainingError, match=r"config\.json") as caught:
        read_shape(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
