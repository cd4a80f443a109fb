"""Bilinear enlargement to a size that is no multiple."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """interpolate to 180 x 180."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(180, 180), mode="bilinear", align_corners=False)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 65, 65)]


def get_init_inputs() -> list[object]:
    return []
