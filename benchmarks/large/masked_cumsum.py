"""Running sums of what a mask keeps, 16384 x 32768."""

import torch
from torch import nn


class Model(nn.Module):
    """Cumulative sum of x where the mask is set."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x * mask, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 32768), torch.rand(16384, 32768) > 0.5]


def get_init_inputs() -> list[object]:
    return []
