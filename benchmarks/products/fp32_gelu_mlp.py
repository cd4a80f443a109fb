"""A feed-forward part with GELU between two products, fp32."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """W2 gelu(W1 x + b1) + b2."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096)]


def get_init_inputs() -> list[object]:
    return [4096, 16384]
