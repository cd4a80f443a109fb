"""Products over the middle of 128 x 2048 x 4095, of numbers near one."""

import torch
from torch import nn


class Model(nn.Module):
    """Product over dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.prod(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [1.0 + 0.01 * torch.randn(128, 2048, 4095)]


def get_init_inputs() -> list[object]:
    return []
