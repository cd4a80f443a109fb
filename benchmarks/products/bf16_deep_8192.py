"""bf16, 8192 x 8192 results of 8,192 terms each."""

import torch
from torch import nn


class Model(nn.Module):
    """a b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(8192, 8192, dtype=torch.bfloat16),
        torch.randn(8192, 8192, dtype=torch.bfloat16),
    ]


def get_init_inputs() -> list[object]:
    return []
