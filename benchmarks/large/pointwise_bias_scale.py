"""A bias and a scale a column on 4096 x 262144 numbers."""

import torch
from torch import nn


class Model(nn.Module):
    """relu(x * scale + bias)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.scale + self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 262144)]


def get_init_inputs() -> list[object]:
    return [262144]
