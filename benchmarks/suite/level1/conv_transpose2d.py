"""A transposed convolution that doubles the picture."""

import torch
from torch import nn


class Model(nn.Module):
    """conv_transpose2d, kernel 4, stride 2."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, outputs, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 128, 32, 32)]


def get_init_inputs() -> list[object]:
    return [128, 64]
