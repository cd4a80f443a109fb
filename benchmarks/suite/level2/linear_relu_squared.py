"""A feed-forward layer with squared ReLU, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """W2 relu(W1 x)^2."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, features, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)).square())


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 1024, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [1024, 4096]
