"""Softmax of 4096 rows of 393216."""

import torch
from torch import nn


class Model(nn.Module):
    """Softmax over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 393216)]


def get_init_inputs() -> list[object]:
    return []
