"""GEGLU: one projection, half of it gates the other, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """gelu(a) * b for (a, b) = W x."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 2 * hidden, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.linear(x).chunk(2, dim=-1)
        return F.gelu(a) * b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 768, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [768, 3072]
