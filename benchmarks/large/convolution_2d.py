"""3 x 3 convolution of 16 x 64 x 512 x 512 to 128 channels, 2.1 GB out."""

import torch
from torch import nn


class Model(nn.Module):
    """Conv2d and ReLU."""

    def __init__(self, inner: int, outer: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, size, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [64, 128, 3]
