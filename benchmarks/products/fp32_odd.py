"""fp32, no side of it even."""

import torch
from torch import nn


class Model(nn.Module):
    """a b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4097, 1023), torch.randn(1023, 777)]


def get_init_inputs() -> list[object]:
    return []
