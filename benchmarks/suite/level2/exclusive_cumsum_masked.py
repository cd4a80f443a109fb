"""A running count of the masked entries before each position."""

import torch
from torch import nn


class Model(nn.Module):
    """cumsum(x * mask) - x * mask."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = x * mask
        return torch.cumsum(kept, dim=-1) - kept


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 4096), torch.rand(8192, 4096) < 0.5]


def get_init_inputs() -> list[object]:
    return []
