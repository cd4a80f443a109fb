"""A diagonal of 16384 times 16384 x 65536, 4.3 GB in and out."""

import torch
from torch import nn


class Model(nn.Module):
    """diag(d) @ b."""

    def forward(self, d: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return d.unsqueeze(1) * b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384), torch.randn(16384, 65536)]


def get_init_inputs() -> list[object]:
    return []
