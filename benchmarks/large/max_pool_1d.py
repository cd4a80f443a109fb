"""Largest of windows of 8 with gaps along 64 x 192 x 65536 numbers."""

import torch
from torch import nn


class Model(nn.Module):
    """MaxPool1d with dilation."""

    def __init__(self, size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool1d(size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 192, 65536)]


def get_init_inputs() -> list[object]:
    return [8, 1, 4, 3]
