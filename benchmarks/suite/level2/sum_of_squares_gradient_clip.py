"""Two gradients clipped to one common norm."""

import torch
from torch import nn


class Model(nn.Module):
    """g * min(1, 1 / ||all g||)."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        norm = torch.sqrt(a.square().sum() + b.square().sum())
        factor = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        return a * factor, b * factor


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096), torch.randn(11008, 4096)]


def get_init_inputs() -> list[object]:
    return []
