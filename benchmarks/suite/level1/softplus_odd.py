"""Softplus with its own beta on a matrix whose sizes are both odd."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """log(1 + exp(2 x)) / 2, linear past the threshold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x, beta=2.0, threshold=15.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4099, 8191)]


def get_init_inputs() -> list[object]:
    return []
