"""Bias and exact GELU, the epilogue of a feed-forward layer when it runs on its own."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """y = gelu(x + bias), with the error function, not the tanh approximation."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192)]


def get_init_inputs() -> list[object]:
    return [8192]
