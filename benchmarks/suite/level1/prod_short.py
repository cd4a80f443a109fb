"""Products over a short odd last dimension."""

import torch
from torch import nn


class Model(nn.Module):
    """product over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.prod(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(1048576, 37) + 0.5]


def get_init_inputs() -> list[object]:
    return []
