"""Bicubic enlargement by 4: a super-resolution baseline."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """interpolate by 4."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=4.0, mode="bicubic", align_corners=False)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 3, 180, 320)]


def get_init_inputs() -> list[object]:
    return []
