"""The feed-forward part of a language model: three products and a gate, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """W3 (silu(W1 x) * W2 x)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 2048, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [2048, 5632]
