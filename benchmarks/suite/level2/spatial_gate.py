"""Spatial attention: channel mean and max, 7 x 7 convolution, sigmoid, product."""

import torch
from torch import nn


class Model(nn.Module):
    """x * sigmoid(conv7x7([mean(x), max(x)]))."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel, padding=kernel // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = torch.cat((x.mean(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)), dim=1)
        return x * torch.sigmoid(self.conv(maps))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256, 56, 56)]


def get_init_inputs() -> list[object]:
    return [7]
