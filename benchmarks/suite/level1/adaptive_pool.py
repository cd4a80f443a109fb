"""Pooling to 7 x 7 from a size that 7 does not divide."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """adaptive average pooling."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(x, 7)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 512, 30, 25)]


def get_init_inputs() -> list[object]:
    return []
