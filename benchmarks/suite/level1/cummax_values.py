"""The largest value so far, and where it stood."""

import torch
from torch import nn


class Model(nn.Module):
    """cummax along the last dimension: values and indices."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.cummax(x, dim=-1)
        return values, indices


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2000, 4096)]


def get_init_inputs() -> list[object]:
    return []
