"""Causal attention probabilities from a product, with the mask made in forward."""

import math

import torch
from torch import nn


class Model(nn.Module):
    """softmax(q k^T / sqrt(d) + causal mask)."""

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        tokens = q.shape[-2]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 8, 512, 64), torch.randn(8, 8, 512, 64)]


def get_init_inputs() -> list[object]:
    return []
