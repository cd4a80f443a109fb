"""A batched product added to a scaled bias, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """0.5 * bias + 2 * a b."""

    def forward(self, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(bias, a, b, beta=0.5, alpha=2.0)


def get_inputs() -> list[torch.Tensor]:
    shapes = ((48, 1000, 1000), (48, 1000, 128), (48, 128, 1000))
    return [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]


def get_init_inputs() -> list[object]:
    return []
