"""Linear layer, hard tanh, residual: a quantisation-friendly block."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + hardtanh(W x + b, -2, 2)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.hardtanh(self.linear(x), -2.0, 2.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(6000, 1536)]


def get_init_inputs() -> list[object]:
    return [1536]
