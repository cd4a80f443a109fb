"""Rows sorted downwards, values alone."""

import torch
from torch import nn


class Model(nn.Module):
    """sort along the last dimension, descending."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x, dim=-1, descending=True).values


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 2048)]


def get_init_inputs() -> list[object]:
    return []
