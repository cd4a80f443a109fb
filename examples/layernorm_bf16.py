"""LayerNorm over the last dimension in bfloat16: the same statistics in half the bytes."""

import torch
from torch import nn


class Model(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, a row at a time."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ln(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [8192]
