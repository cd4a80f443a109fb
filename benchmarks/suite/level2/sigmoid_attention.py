"""Attention with a sigmoid in place of the softmax, bf16."""

import math

import torch
from torch import nn


class Model(nn.Module):
    """sigmoid(q k^T / sqrt(d) - log(tokens)) v."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return torch.sigmoid(scores - math.log(k.shape[-2])) @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 12, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
