"""A linear layer with a low-rank update beside it, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """W x + (alpha / r) B A x."""

    def __init__(self, features: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(features, features, bias=False)
        self.a = nn.Linear(features, rank, bias=False)
        self.b = nn.Linear(rank, features, bias=False)
        self.scale = 16.0 / rank
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * self.b(self.a(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 2048, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [2048, 16]
