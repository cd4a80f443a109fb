"""A linear layer with GELU as its epilogue, 4096 x 4096 x 4096 in fp32."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """y = gelu(x @ weight^T + bias)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.proj = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.proj(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096)]


def get_init_inputs() -> list[object]:
    return [4096]
