"""Average of windows of 8 along 64 x 128 x 65536 numbers, 2.1 GB."""

import torch
from torch import nn


class Model(nn.Module):
    """AvgPool1d."""

    def __init__(self, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool1d(size, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 128, 65536)]


def get_init_inputs() -> list[object]:
    return [8, 1, 4]
