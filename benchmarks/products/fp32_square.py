"""Two fp32 matrices of 4096 x 4096."""

import torch
from torch import nn


class Model(nn.Module):
    """a b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096), torch.randn(4096, 4096)]


def get_init_inputs() -> list[object]:
    return []
