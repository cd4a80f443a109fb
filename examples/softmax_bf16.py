"""Softmax over the last dimension of a large bfloat16 matrix."""

import torch
from torch import nn


class Model(nn.Module):
    """y = exp(x - max(x)) / sum(exp(x - max(x))), a row at a time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
