"""3 x 3 x 3 convolution of 8 x 16 x 96 x 192 x 192 to 64 channels, with a leaky ReLU."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Conv3d and leaky ReLU."""

    def __init__(self, inner: int, outer: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inner, outer, size, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.conv(x), 0.1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(8, 16, 96, 192, 192)]


def get_init_inputs() -> list[object]:
    return [16, 64, 3]
