"""Sub-pixel upsampling: convolution, pixel shuffle, PReLU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """prelu(pixel_shuffle(conv3x3(x), 2))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4 * channels, 3, padding=1)
        self.slope = nn.Parameter(torch.empty(channels).uniform_(0.05, 0.4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.prelu(F.pixel_shuffle(self.conv(x), 2), self.slope)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 90, 90)]


def get_init_inputs() -> list[object]:
    return [64]
