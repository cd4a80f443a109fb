"""Transposed 3 x 3 convolution of 16 x 64 x 512 x 512 to 32 channels, stride 2."""

import torch
from torch import nn


class Model(nn.Module):
    """ConvTranspose2d."""

    def __init__(self, inner: int, outer: int, size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(inner, outer, size, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [64, 32, 3]
