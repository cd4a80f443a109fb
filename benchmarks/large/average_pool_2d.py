"""Average of 11 x 11 windows of 16 x 64 x 2048 x 2048, 17 GB in."""

import torch
from torch import nn


class Model(nn.Module):
    """AvgPool2d of its own stride."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 2048, 2048)]


def get_init_inputs() -> list[object]:
    return [11]
