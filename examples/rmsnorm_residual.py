"""Residual add and RMSNorm, the pair between two blocks of a transformer; both are returned."""

import torch
from torch import nn


class Model(nn.Module):
    """h = x + residual; y = h / sqrt(mean(h^2) + eps) * weight; returns (y, h)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-6)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = x + residual
        return self.norm(hidden), hidden


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192), torch.randn(8192, 8192)]


def get_init_inputs() -> list[object]:
    return [8192]
