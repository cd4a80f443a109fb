"""A 7 x 7 depthwise convolution."""

import torch
from torch import nn


class Model(nn.Module):
    """one filter a channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 192, 56, 56)]


def get_init_inputs() -> list[object]:
    return [192]
