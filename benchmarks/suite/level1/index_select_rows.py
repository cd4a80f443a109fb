"""Rows in another order, the odd width of a feature store."""

import torch
from torch import nn


class Model(nn.Module):
    """x[order] along dimension 0."""

    def forward(self, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, 0, order)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(100000, 333), torch.randint(0, 100000, (150000,))]


def get_init_inputs() -> list[object]:
    return []
