"""Largest element of every row and its place."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.max(x, dim=-1)
        return values, places


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 1024)]


def get_init_inputs() -> list[object]:
    return []
