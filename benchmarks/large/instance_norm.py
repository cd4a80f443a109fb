"""InstanceNorm of 112 x 64 x 512 x 512, 7.5 GB in and out."""

import torch
from torch import nn


class Model(nn.Module):
    """InstanceNorm2d without weights."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(112, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [64]
