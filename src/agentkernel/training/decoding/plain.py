"""Is a model a Llama that computes nothing but what a Llama's configuration says?"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from agentkernel.training.decoding.dropout import BranchDropout

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
PARTS = {
    "LlamaForCausalLM",
    "LlamaModel",
    "LlamaDecoderLayer",
    "LlamaAttention",
    "LlamaMLP",
    "LlamaRMSNorm",
    "LlamaRotaryEmbedding",
    "Embedding",
    "Linear",
    "ModuleList",
    "SiLU",
    "SiLUActivation",
}
HOMES = ("torch.nn.modules.", "transformers.models.llama.", "transformers.activations")
"""An adapter's or a quantiser's linear layer goes by the same name, from elsewhere."""


def as_plain_llama(model: object) -> LlamaForCausalLM | None:
    """`model`, where it is one with default rotations and without biases, all of it in one place
    and of one type; None for one with an adapter, quantised, or with hooks that change answers."""
    from transformers import LlamaForCausalLM

    if type(model) is not LlamaForCausalLM:
        return None
    if not all(_is_part(item) for item in model.modules()):
        return None
    config, rotations = model.config, model.model.rotary_emb
    fits = (
        config.hidden_act in ("silu", "swish")
        and rotations.rope_type == "default"
        and rotations.attention_scaling == 1.0
        and len(model.model.layers) == config.num_hidden_layers
        and not any(name.endswith(".bias") for name, _ in model.named_parameters())
        and 2 * rotations.inv_freq.numel() * config.num_attention_heads
        == model.model.layers[0].self_attn.q_proj.out_features
    )
    return model if fits and _in_one_place(model) else None


def _is_part(item: torch.nn.Module) -> bool:
    kind = type(item)
    return (
        kind.__name__ in PARTS
        and kind.__module__.startswith(HOMES)
        and all(isinstance(hook, BranchDropout) for hook in item._forward_hooks.values())
        and not item._forward_pre_hooks
    )


def _in_one_place(model: torch.nn.Module) -> bool:
    parameters = list(model.parameters())
    kinds = {item.dtype for item in parameters}
    devices = {item.device for item in chain(parameters, model.buffers())}
    return (
        len(devices) == len(kinds) == 1
        and kinds <= set(FLOATS)
        and all(type(item) is torch.nn.Parameter for item in parameters)
    )


__all__ = ["as_plain_llama"]
