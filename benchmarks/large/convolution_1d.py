"""Convolution of 9 taps on 64 x 64 x 131072, 4.3 GB out."""

import torch
from torch import nn


class Model(nn.Module):
    """Conv1d."""

    def __init__(self, inner: int, outer: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inner, outer, size, padding=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(64, 64, 131072)]


def get_init_inputs() -> list[object]:
    return [64, 128, 9]
