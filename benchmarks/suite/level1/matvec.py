"""A matrix of 1 GB times a vector."""

import torch
from torch import nn


class Model(nn.Module):
    """a v."""

    def forward(self, a: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.mv(a, v)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 16387), torch.randn(16387)]


def get_init_inputs() -> list[object]:
    return []
