"""A 1 x 7 convolution with an uneven picture, fp16."""

import torch
from torch import nn


class Model(nn.Module):
    """conv2d, kernel (1, 7)."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, (1, 7), padding=(0, 3), dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 160, 47, 65, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [160, 192]
