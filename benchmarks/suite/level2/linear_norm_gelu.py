"""Linear layer, LayerNorm, GELU: a projection head, fp32, odd width."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """gelu(layer_norm(W x + b))."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = nn.LayerNorm(outputs)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.norm(self.linear(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 1000)]


def get_init_inputs() -> list[object]:
    return [1000, 1025]
