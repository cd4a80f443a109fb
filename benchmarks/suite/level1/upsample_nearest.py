"""Nearest-neighbour doubling, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """interpolate by 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="nearest")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 128, 64, 64, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
