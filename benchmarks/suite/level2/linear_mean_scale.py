"""A readout whose mean over the outputs comes right after a linear layer."""

import torch
from torch import nn


class Model(nn.Module):
    """scale * mean(W x + b)."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = nn.Parameter(torch.empty(1).uniform_(0.5, 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).mean(dim=-1, keepdim=True) * self.scale


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 3000)]


def get_init_inputs() -> list[object]:
    return [3000, 2000]
