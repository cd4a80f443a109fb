"""An energy: linear layer, tanh, weighted sum over the features."""

import torch
from torch import nn


class Model(nn.Module):
    """sum(v * tanh(W x + b))."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.weight = nn.Parameter(torch.randn(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(self.linear(x)) * self.weight).sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 512)]


def get_init_inputs() -> list[object]:
    return [512, 1024]
