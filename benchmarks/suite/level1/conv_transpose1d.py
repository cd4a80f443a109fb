"""The upsampling step of a vocoder."""

import torch
from torch import nn


class Model(nn.Module):
    """conv_transpose1d, kernel 16, stride 8."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(channels, outputs, 16, stride=8, padding=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 512, 800)]


def get_init_inputs() -> list[object]:
    return [512, 256]
