"""The cyclic shift of windowed attention."""

import torch
from torch import nn


class Model(nn.Module):
    """roll by (-3, -3)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x, shifts=(-3, -3), dims=(1, 2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 56, 56, 192)]


def get_init_inputs() -> list[object]:
    return []
