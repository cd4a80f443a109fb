"""A transposed convolution over a volume, with output padding."""

import torch
from torch import nn


class Model(nn.Module):
    """conv_transpose3d, kernel 3, stride 2."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(channels, outputs, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 48, 16, 28, 28)]


def get_init_inputs() -> list[object]:
    return [48, 24]
