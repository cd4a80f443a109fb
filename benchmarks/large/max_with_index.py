"""Largest values and their places, over rows of 131072."""

import torch
from torch import nn


class Model(nn.Module):
    """Values and indices of the maximum."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = x.max(dim=-1)
        return values, indices


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 131072)]


def get_init_inputs() -> list[object]:
    return []
