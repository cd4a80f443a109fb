"""A diagonal matrix, written out, times a full one."""

import torch
from torch import nn


class Model(nn.Module):
    """diag(a) b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(a) @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096), torch.randn(4096, 4096)]


def get_init_inputs() -> list[object]:
    return []
