"""All differences of two vectors: an outer broadcast that writes far more than it reads."""

import torch
from torch import nn


class Model(nn.Module):
    """a[i] - b[j]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a[:, None] - b[None, :]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192), torch.randn(8200)]


def get_init_inputs() -> list[object]:
    return []
