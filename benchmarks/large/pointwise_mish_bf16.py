"""Mish on 6.4 GB of bf16."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.mish(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 393216, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
