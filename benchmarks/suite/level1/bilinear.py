"""A bilinear form a pair of vectors."""

import torch
from torch import nn


class Model(nn.Module):
    """x1 W x2^T + bias, an output feature at a time."""

    def __init__(self, left: int, right: int, outputs: int) -> None:
        super().__init__()
        self.form = nn.Bilinear(left, right, outputs)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        return self.form(x1, x2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 160), torch.randn(16384, 144)]


def get_init_inputs() -> list[object]:
    return [160, 144, 96]
