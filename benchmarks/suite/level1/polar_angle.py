"""The angle of points in the plane."""

import torch
from torch import nn


class Model(nn.Module):
    """atan2(y, x)."""

    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2048, 10000), torch.randn(2048, 10000)]


def get_init_inputs() -> list[object]:
    return []
