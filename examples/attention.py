"""Multi-head attention scores written out: two batched products with a softmax between them."""

import math

import torch
from torch import nn


class Model(nn.Module):
    """softmax(q @ k^T / sqrt(d)) @ v for q, k, v of (batch, heads, tokens, d)."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return torch.softmax(scores, dim=-1) @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 16, 2048, 64, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
