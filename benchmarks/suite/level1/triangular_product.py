"""A lower triangular matrix times a full one: half of the work is zeros."""

import torch
from torch import nn


class Model(nn.Module):
    """tril(a) b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a) @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3072, 3072), torch.randn(3072, 3072)]


def get_init_inputs() -> list[object]:
    return []
