"""Two lower triangular fp32 matrices, whose product is one too."""

import torch
from torch import nn


class Model(nn.Module):
    """tril(a b)."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a @ b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096).tril(), torch.randn(4096, 4096).tril()]


def get_init_inputs() -> list[object]:
    return []
