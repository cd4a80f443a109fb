"""What does a plain Llama compute, on its own weights, a token at a time?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding, linear

from agentkernel.training.decoding.operations import Heads, Operations, RotaryTables
from agentkernel.training.decoding.plain import as_plain_llama

FEW_BYTES = 256 << 20
"""Weights that are copied side by side, so that one product does the work of three."""
Attend = Callable[[int, Heads], torch.Tensor]
"""What the tokens see in a layer, by its number: [tokens, heads * size]."""


@dataclass(frozen=True)
class FusedLinear:
    """Matrices that read the same input: one under the other, or each alone."""

    matrices: tuple[torch.Tensor, ...]
    widths: tuple[int, ...]

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[tokens, inputs] to as many times [tokens, width]."""
        found = [linear(inputs, matrix) for matrix in self.matrices]
        return tuple(found) if len(found) > 1 else torch.split(found[0], list(self.widths), -1)


@dataclass(frozen=True)
class Layer:
    """One layer's weights; norms as the model has them, matrices in the type computed in."""

    before_attention: torch.Tensor
    reads: FusedLinear
    attended: torch.Tensor
    before_gates: torch.Tensor
    gates: FusedLinear
    down: torch.Tensor


@dataclass(frozen=True)
class Llama:
    """A model's weights and shape, as they are at this moment."""

    first: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor
    frequencies: torch.Tensor
    epsilon: float
    key_heads: int
    size: int
    dtype: torch.dtype
    """What products are computed in, and keys and values kept in."""

    @property
    def device(self) -> torch.device:
        """Where all of it lies."""
        return self.first.device

    def token_bytes(self) -> int:
        """What one token's keys and values take."""
        return 2 * len(self.layers) * self.key_heads * self.size * self.dtype.itemsize

    def turns(self, room: int) -> RotaryTables:
        """Of the places up to `room`."""
        places = torch.arange(room, device=self.device, dtype=torch.float32)
        angles = torch.outer(places, self.frequencies)
        return RotaryTables(angles.cos(), angles.sin())

    def logits(
        self,
        tokens: torch.Tensor,
        operations: Operations,
        attend: Attend,
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What is expected after each of `tokens` [tokens], or after those at `chosen`:
        [tokens, vocabulary]."""
        residual = embedding(tokens, self.first)
        added: torch.Tensor | None = None

        def normed(weight: torch.Tensor) -> torch.Tensor:
            return operations.add_norm(residual, added, weight, self.epsilon, self.dtype)

        for number, layer in enumerate(self.layers):
            query, key, value = layer.reads(normed(layer.before_attention))
            added = linear(attend(number, Heads(query, key, value)), layer.attended)
            gate, up = layer.gates(normed(layer.before_gates))
            added = linear(operations.gated(gate, up), layer.down)
        if chosen is not None:
            residual = residual[chosen]
            added = added if added is None else added[chosen]
        return linear(normed(self.norm), self.head)


def read_llama(model: object, dtype: torch.dtype | None = None) -> Llama | None:
    """The weights of `model`, computed in `dtype` (None: their own). They are not copied, but where
    they are of another type or few. None where it is any other model than a plain Llama with
    default rotations: one with an adapter, quantised, spread over devices, or watched by hooks."""
    plain = as_plain_llama(model)
    if plain is None:
        return None
    config, body = plain.config, plain.model
    weights = [item.weight for item in plain.modules() if isinstance(item, torch.nn.Linear)]
    wanted = dtype or body.embed_tokens.weight.dtype
    few = sum(item.numel() for item in weights) * wanted.itemsize <= FEW_BYTES

    def copied(weight: torch.Tensor) -> torch.Tensor:
        return weight.detach().to(wanted)

    def beside(*linears: torch.nn.Linear) -> FusedLinear:
        matrices = [item.weight.detach() for item in linears]
        widths = tuple(item.shape[0] for item in matrices)
        if few:
            return FusedLinear((torch.cat(matrices).to(wanted),), widths)
        return FusedLinear(tuple(item.to(wanted) for item in matrices), widths)

    layers = tuple(
        Layer(
            before_attention=item.input_layernorm.weight.detach(),
            reads=beside(item.self_attn.q_proj, item.self_attn.k_proj, item.self_attn.v_proj),
            attended=copied(item.self_attn.o_proj.weight),
            before_gates=item.post_attention_layernorm.weight.detach(),
            gates=beside(item.mlp.gate_proj, item.mlp.up_proj),
            down=copied(item.mlp.down_proj.weight),
        )
        for item in body.layers
    )
    return Llama(
        first=body.embed_tokens.weight.detach(),
        layers=layers,
        norm=body.norm.weight.detach(),
        head=copied(plain.lm_head.weight),
        frequencies=body.rotary_emb.inv_freq.detach().float(),
        epsilon=float(config.rms_norm_eps),
        key_heads=int(config.num_key_value_heads or config.num_attention_heads),
        size=2 * body.rotary_emb.inv_freq.numel(),
        dtype=wanted,
    )


__all__ = ["Attend", "FusedLinear", "Layer", "Llama", "read_llama"]
