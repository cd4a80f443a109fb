"""Attention with linear position biases and a feed-forward part, both from one norm."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + attention(norm(x)) + W2 gelu(W1 norm(x))."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out = nn.Linear(features, features, bias=False)
        self.up = nn.Linear(features, 4 * features, bias=False)
        self.down = nn.Linear(4 * features, features, bias=False)
        slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", slopes[:, None, None])
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[1]
        normed = self.norm(x)
        q, k, v = (
            item.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for item in self.qkv(normed).chunk(3, dim=-1)
        )
        place = torch.arange(tokens, device=x.device)
        distance = place[None, :] - place[:, None]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + self.slopes * distance
        weights = torch.softmax(scores.masked_fill(distance > 0, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        return x + self.out(mixed) + self.down(F.gelu(self.up(normed)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 384, 768)]


def get_init_inputs() -> list[object]:
    return [768, 12]
