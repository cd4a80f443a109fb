"""A 1 x 1 convolution: a matrix product over the channels."""

import torch
from torch import nn


class Model(nn.Module):
    """conv2d, kernel 1."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256, 56, 56)]


def get_init_inputs() -> list[object]:
    return [256, 128]
