"""The first convolution of an image network: 3 channels in, kernel 7, stride 2."""

import torch
from torch import nn


class Model(nn.Module):
    """conv2d, 3 to 64 channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 3, 224, 224)]


def get_init_inputs() -> list[object]:
    return [64]
