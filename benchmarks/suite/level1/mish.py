"""Mish on detector feature maps."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.mish(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256, 60, 60)]


def get_init_inputs() -> list[object]:
    return []
