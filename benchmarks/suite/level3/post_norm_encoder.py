"""A post-norm encoder block with its attention written out, fp32, as the first transformers."""

import math

import torch
from torch import nn


class Model(nn.Module):
    """norm(x + attention(x)), then norm(. + W2 relu(W1 .))."""

    def __init__(self, features: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features)
        self.v = nn.Linear(features, features)
        self.out = nn.Linear(features, features)
        self.norm1 = nn.LayerNorm(features)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.norm2 = nn.LayerNorm(features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, tokens, features)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(torch.relu(self.up(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 200, 512)]


def get_init_inputs() -> list[object]:
    return [512, 8, 2048]
