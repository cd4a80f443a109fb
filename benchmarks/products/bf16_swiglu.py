"""The gated half of a language model's feed-forward part, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """silu(W1 x) * W2 x."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [4096, 11008]
