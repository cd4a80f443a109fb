"""Variance of 128 x 4096 rows of 4095."""

import torch
from torch import nn


class Model(nn.Module):
    """Unbiased variance over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.var(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 4096, 4095)]


def get_init_inputs() -> list[object]:
    return []
