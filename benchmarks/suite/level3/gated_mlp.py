"""A gMLP block: a spatial projection gates half of the channels."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + W2 (a * (S norm(b) + 1)) for (a, b) = gelu(W1 norm(x))."""

    def __init__(self, tokens: int, features: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.enter = nn.Linear(features, 2 * hidden)
        self.inner = nn.LayerNorm(hidden)
        self.spatial = nn.Conv1d(tokens, tokens, 1)
        self.leave = nn.Linear(hidden, features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = F.gelu(self.enter(self.norm(x))).chunk(2, dim=-1)
        return x + self.leave(a * (self.spatial(self.inner(b)) + 1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256, 256)]


def get_init_inputs() -> list[object]:
    return [256, 256, 768]
