"""Sums over the first dimension of 4096 x 393216."""

import torch
from torch import nn


class Model(nn.Module):
    """Sum over dimension 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 393216)]


def get_init_inputs() -> list[object]:
    return []
