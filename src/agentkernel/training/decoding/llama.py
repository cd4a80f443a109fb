"""A Llama's decoding step in torch, the reference of the kernels, and dropout of its branches.

Only a model that computes nothing but what a Llama's configuration says is decoded here. Token
sampling takes the logits and a uniform number between 0 and 1. In training, a share of what the
embedding gives and each decoder layer adds is left out, drawn anew for each token and column
(Srivastava et al., JMLR 15, 2014; at these places as Vaswani et al., arXiv 1706.03762, section
5.4); Llama-like models have no such setting of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.nn.functional import dropout, embedding, linear, scaled_dot_product_attention, silu

from agentkernel.domain.errors import TrainingError

if TYPE_CHECKING:
    from torch import nn
    from transformers import LlamaForCausalLM


KEY = (1 << 64) - 1


@dataclass(frozen=True)
class TokenSampling:
    """How the tokens of an answer are drawn, from `seed`: up to and with one of `ends`, or so many
    at most. Temperature 0: always the likeliest."""

    temperature: float
    top_p: float
    most_tokens: int
    ends: frozenset[int] = frozenset()
    seed: int = 0


def uniform_streams(seed: int, rows: Sequence[int], count: int) -> torch.Tensor:
    """Uniform numbers in [0, 1), float32 [rows, count]: those of a row depend on `seed` and its
    number alone, so that it draws the same beside whatever other rows (Philox, a counter-based
    generator: Salmon et al., SC 2011)."""
    found = np.empty((len(rows), count), dtype=np.float32)
    for place, row in enumerate(rows):
        key = np.array([seed & KEY, row], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        generator.random(out=found[place], dtype=np.float32)
    return torch.from_numpy(found)


def sample_tokens(
    logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
) -> torch.Tensor:
    """A token a row, int64 [rows], from the smallest set of the likeliest tokens whose
    probabilities come to `top_p`; equally likely ones are in it or out of it together.

    `logits` [rows, vocabulary], `uniforms` [rows] in [0, 1): where it falls among the summed
    probabilities, in the vocabulary's order, is the token.
    """
    if drawing.temperature == 0:
        return logits.argmax(-1)
    likely = torch.softmax(logits.float() / drawing.temperature, -1)
    if drawing.top_p < 1:
        likely = _nucleus(likely, drawing.top_p)
    # In 64 bits, so that no product with a number below 1 is rounded up to the whole.
    summed = likely.double().cumsum(-1)
    wanted = uniforms.double()[:, None] * summed[:, -1:]
    return (summed > wanted).to(torch.uint8).argmax(-1)


def _nucleus(likely: torch.Tensor, top_p: float) -> torch.Tensor:
    falling = likely.sort(-1, descending=True).values
    short = (falling.cumsum(-1) < top_p).sum(-1, keepdim=True)
    least = falling.gather(-1, short.clamp(max=likely.shape[-1] - 1))
    return likely.masked_fill(likely < least, 0.0)


class Heads(NamedTuple):
    """What a layer reads of its input: queries [tokens, heads * size], keys and values
    [tokens, key heads * size]; rows need not lie side by side."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class KeyValueCache(NamedTuple):
    """A layer's keys and values of all slots, [slots, key heads, room, size]."""

    keys: torch.Tensor
    values: torch.Tensor


class RotaryTables(NamedTuple):
    """Cosines and sines by which queries and keys are turned, float32 [room, size / 2]."""

    cosines: torch.Tensor
    sines: torch.Tensor


class TorchOperations:
    """What a step computes beside its matrix products, in torch."""

    def add_norm(
        self,
        residual: torch.Tensor,
        added: torch.Tensor | None,
        weight: torch.Tensor,
        epsilon: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """`residual` [tokens, hidden] becomes the sum; gives its RMS norm in `dtype`."""
        if added is not None:
            residual += added
        wide = residual.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        return (weight * wide.to(residual.dtype)).to(dtype)

    def gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up, [tokens, intermediate]."""
        return silu(gate) * up

    def attend(
        self,
        heads: Heads,
        kept: KeyValueCache,
        turns: RotaryTables,
        slots: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """One new token a row: its key and value, turned, go to place `lengths[slot]` of its slot,
        and it sees all up to there. `slots` [rows] are different ones, `lengths` [slots]; gives
        [rows, heads * size]."""
        size = kept.keys.shape[-1]
        places = lengths[slots].long()
        by_row = RotaryTables(turns.cosines[places], turns.sines[places])
        query = apply_rotary(by_head(heads.query, size), by_row)
        key = apply_rotary(by_head(heads.key, size), by_row)
        kept.keys[slots, :, places] = key
        kept.values[slots, :, places] = by_head(heads.value, size)
        most = int(places.max()) + 1
        seen = torch.arange(most, device=places.device) <= places[:, None]
        found = scaled_dot_product_attention(
            query[:, :, None],
            kept.keys[slots, :, :most],
            kept.values[slots, :, :most],
            attn_mask=seen[:, None, None],
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found.flatten(1)

    def draw(
        self, logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
    ) -> torch.Tensor:
        """See sample_tokens."""
        return sample_tokens(logits, uniforms, drawing)


def by_head(rows: torch.Tensor, size: int) -> torch.Tensor:
    """[tokens, heads * size] as [tokens, heads, size]."""
    return rows.view(len(rows), -1, size)


def apply_rotary(heads: torch.Tensor, turns: RotaryTables) -> torch.Tensor:
    """`heads` [tokens, heads, size] turned by the angles of their places (RoPE, arXiv 2104.09864,
    with the halves of a head as pairs). `turns` [tokens, size / 2] each."""
    first, second = heads.float().chunk(2, -1)
    cosines, sines = (item[:, None] for item in turns)
    pair = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat(pair, -1).to(heads.dtype)


ADDED = ("o_proj", "down_proj")
"""The last matrices of attention and MLP in Llama-like models: what they give is added."""


@dataclass(frozen=True)
class BranchDropout:
    """A forward hook that leaves out `share` of what a module gives; nothing when it answers."""

    share: float

    def __call__(self, module: nn.Module, given: object, found: torch.Tensor) -> torch.Tensor:
        return dropout(found, self.share, training=module.training)


def add_dropout(model: nn.Module, share: float) -> int:
    """Leave out `share` (0 to 1) of what the embedding and the layers of `model` give, while it is
    in training mode; saved weights know nothing of it. Gives at how many places; 0 for a share of
    0. Raises TrainingError where the model has none of them."""
    if not share:
        return 0
    layers = [item for name, item in model.named_modules() if name.rpartition(".")[2] in ADDED]
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    if not layers or embedding is None:
        raise TrainingError(
            f"sft.dropout is {share}, and {type(model).__name__} has no layers that end in "
            f"{' and '.join(ADDED)}. Expected a Llama-like model. Next: -c sft.dropout=0."
        )

    for item in (embedding, *layers):
        item.register_forward_hook(BranchDropout(share))
    return 1 + len(layers)


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
        operations: TorchOperations,
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
