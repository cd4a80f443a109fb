"""A small convolution over video."""

import torch
from torch import nn


class Model(nn.Module):
    """conv3d, kernel 3."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, outputs, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 32, 16, 56, 56)]


def get_init_inputs() -> list[object]:
    return [32, 64]
