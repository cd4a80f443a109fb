"""Average of 3 x 3 x 3 windows of 16 x 32 x 128 x 128 x 256."""

import torch
from torch import nn


class Model(nn.Module):
    """AvgPool3d."""

    def __init__(self, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool3d(size, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 32, 128, 128, 256)]


def get_init_inputs() -> list[object]:
    return [3, 2, 1]
