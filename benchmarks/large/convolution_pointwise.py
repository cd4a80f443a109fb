"""1 x 1 convolution of 16 x 64 x 1024 x 1024 to 128 channels, 8.6 GB out."""

import torch
from torch import nn


class Model(nn.Module):
    """Conv2d of size one."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 64, 1024, 1024)]


def get_init_inputs() -> list[object]:
    return [64, 128]
