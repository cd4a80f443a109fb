"""The weights of a model's shape, as transformers makes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.domain.errors import TrainingError
from agentkernel.training.model_shape import PUBLISHED, read_shape
from agentkernel.training.settings import Lora
from tests.training.model_shapes import LLAMA, QWEN, TINY, made, sizes_of

SMALL_SHAPE = TINY.evolve(
    hidden=48, layers=3, heads=6, head_size=8, key_heads=2, intermediate=80, vocabulary=100
)
SMALL = sizes_of(SMALL_SHAPE)


def test_a_shape_of_a_few_weights_counted_by_hand() -> None:
    shape = TINY
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
    model = made(kind, "meta", **SMALL | {"tie_word_embeddings": tied})
    model.config.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert shape.parameters == sum(item.numel() for item in model.parameters())
    assert (shape.window, shape.tied) == (64, tied)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_shape_is_what_transformers_makes_of_its_sizes(name: str) -> None:
    shape = PUBLISHED[name]
    model = made("qwen2" if shape.biased else "llama", "meta", **sizes_of(shape))
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
    assert SMALL_SHAPE.adapter_parameters(Lora(rank=4)) == trained


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
