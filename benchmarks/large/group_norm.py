"""GroupNorm of 8 groups on 112 x 64 x 512 x 512."""

import torch
from torch import nn


class Model(nn.Module):
    """GroupNorm."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(112, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [8, 64]
