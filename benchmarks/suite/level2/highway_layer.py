"""A highway layer: two projections, one gates the other against the input."""

import torch
from torch import nn


class Model(nn.Module):
    """t relu(W1 x) + (1 - t) x, t = sigmoid(W2 x)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.plain = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.plain(x)) + (1 - gate) * x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 777)]


def get_init_inputs() -> list[object]:
    return [777]
