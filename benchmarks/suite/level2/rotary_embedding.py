"""Rotary position embedding of queries, in half-rotated form."""

import torch
from torch import nn


class Model(nn.Module):
    """x * cos + rotate_half(x) * sin."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 32, 2048, 128), torch.randn(2048, 128), torch.randn(2048, 128)]


def get_init_inputs() -> list[object]:
    return []
