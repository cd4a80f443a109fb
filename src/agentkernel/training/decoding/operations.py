"""What does a Llama compute beside products of matrices? In plain torch: the kernels' reference."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from agentkernel.training.decoding.drawing import TokenSampling, sample_tokens


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


class Operations(Protocol):
    """In torch, or by kernels of our own."""

    def add_norm(
        self,
        residual: torch.Tensor,
        added: torch.Tensor | None,
        weight: torch.Tensor,
        epsilon: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """`residual` [tokens, hidden] becomes the sum; gives its RMS norm in `dtype`."""
        ...

    def gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up, [tokens, intermediate]."""
        ...

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
        ...

    def draw(
        self, logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
    ) -> torch.Tensor:
        """See drawing.draw."""
        ...


class TorchOperations:
    """The plain ones."""

    def add_norm(
        self,
        residual: torch.Tensor,
        added: torch.Tensor | None,
        weight: torch.Tensor,
        epsilon: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        if added is not None:
            residual += added
        wide = residual.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        return (weight * wide.to(residual.dtype)).to(dtype)

    def gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return silu(gate) * up

    def attend(
        self,
        heads: Heads,
        kept: KeyValueCache,
        turns: RotaryTables,
        slots: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
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


__all__ = [
    "Heads",
    "KeyValueCache",
    "Operations",
    "RotaryTables",
    "TorchOperations",
    "apply_rotary",
    "by_head",
]
