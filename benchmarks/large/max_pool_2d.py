"""Largest of 4 x 4 windows of 32 x 64 x 512 x 512."""

import torch
from torch import nn


class Model(nn.Module):
    """MaxPool2d of stride 1."""

    def __init__(self, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(size, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [4, 1, 1]
