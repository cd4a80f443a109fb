"""Convolution, batch norm and ReLU: the unit that residual networks are made of, at inference."""

import torch
from torch import nn


class Model(nn.Module):
    """y = relu(batch_norm(conv3x3(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 128, 56, 56)]


def get_init_inputs() -> list[object]:
    return [128]
