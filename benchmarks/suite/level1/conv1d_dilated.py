"""A dilated convolution over audio frames."""

import torch
from torch import nn


class Model(nn.Module):
    """conv1d, kernel 3, dilation 8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, dilation=8, padding=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 256, 8000)]


def get_init_inputs() -> list[object]:
    return [256]
