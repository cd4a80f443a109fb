"""Affine map of a vector of 2**24 elements."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5 + 0.25


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16777216)]


def get_init_inputs() -> list[object]:
    return []
