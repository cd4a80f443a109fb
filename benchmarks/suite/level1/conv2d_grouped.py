"""A grouped 3 x 3 convolution, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """conv2d in 32 groups."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 256, 28, 28, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [256, 32]
