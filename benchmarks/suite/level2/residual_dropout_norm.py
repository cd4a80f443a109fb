"""Bias, residual, LayerNorm: the seam between two transformer layers, fp16 (dropout is idle)."""

import torch
from torch import nn


class Model(nn.Module):
    """layer_norm(residual + dropout(x + bias))."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.2)
        self.drop = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(residual + self.drop(x + self.bias))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 1536, dtype=torch.float16) for _ in range(2)]


def get_init_inputs() -> list[object]:
    return [1536]
