"""A product with a transposed right factor, bf16, large."""

import torch
from torch import nn


class Model(nn.Module):
    """a b^T."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.mm(a, b.mT)


def get_inputs() -> list[torch.Tensor]:
    a = torch.randn(8192, 4096, dtype=torch.bfloat16)
    return [a, torch.randn(6144, 4096, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
