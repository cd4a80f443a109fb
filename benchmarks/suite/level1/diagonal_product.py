"""A diagonal matrix times a full one: the square matrix need not exist."""

import torch
from torch import nn


class Model(nn.Module):
    """diag(d) b."""

    def forward(self, d: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(d) @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096), torch.randn(4096, 3000)]


def get_init_inputs() -> list[object]:
    return []
