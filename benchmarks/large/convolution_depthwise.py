"""3 x 3 depthwise convolution of 64 x 128 x 256 x 512, 4.3 GB in and out."""

import torch
from torch import nn


class Model(nn.Module):
    """Depthwise Conv2d."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, size, padding=1, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(64, 128, 256, 512)]


def get_init_inputs() -> list[object]:
    return [128, 3]
