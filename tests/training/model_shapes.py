"""A shape of a few weights, and the models that transformers makes of sizes."""

from __future__ import annotations

from typing import Any

import torch

from agentkernel.training.model_shape import PUBLISHED, ModelShape

QWEN = PUBLISHED["Qwen/Qwen2.5-Coder-3B-Instruct"]
LLAMA = PUBLISHED["meta-llama/Llama-3.1-8B-Instruct"]
TINY = ModelShape(
    hidden=4,
    layers=2,
    heads=2,
    key_heads=1,
    head_size=2,
    intermediate=6,
    vocabulary=10,
    window=64,
    tied=True,
    source="",
)
"""120 weights of matrices a layer, 40 of the first and the last matrix."""


def sizes_of(shape: ModelShape) -> dict[str, Any]:
    """The shape in the words of transformers."""
    return {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.window,
        "tie_word_embeddings": shape.tied,
    }


def made(kind: str, device: str, **sizes: Any) -> Any:
    """What transformers makes of these sizes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    build: Any = AutoModelForCausalLM.from_config
    with torch.device(device):
        return build(AutoConfig.for_model(kind, **sizes))
