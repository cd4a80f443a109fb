"""Softmax over the middle of 64 x 2048 x 8190."""

import torch
from torch import nn


class Model(nn.Module):
    """Softmax over dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 2048, 8190)]


def get_init_inputs() -> list[object]:
    return []
