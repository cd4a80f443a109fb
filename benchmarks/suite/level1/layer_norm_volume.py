"""LayerNorm over channels, height and width together: rows of 147456 elements."""

import torch
from torch import nn


class Model(nn.Module):
    """layer_norm over the last three dimensions."""

    def __init__(self, shape: list[int]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 64, 48, 48)]


def get_init_inputs() -> list[object]:
    return [[64, 48, 48]]
