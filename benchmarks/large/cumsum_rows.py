"""Running sums along 32768 rows of 32768, 4.3 GB."""

import torch
from torch import nn


class Model(nn.Module):
    """Cumulative sum over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 32768)]


def get_init_inputs() -> list[object]:
    return []
