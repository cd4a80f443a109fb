"""The style loss of two feature maps through their Gram matrices."""

import torch
from torch import nn


class Model(nn.Module):
    """mean((G(a) - G(b))^2)."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        left, right = a.flatten(2), b.flatten(2)
        size = left.shape[1] * left.shape[2]
        first = left @ left.transpose(1, 2) / size
        return (first - right @ right.transpose(1, 2) / size).square().mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 256, 96, 96), torch.randn(8, 256, 96, 96)]


def get_init_inputs() -> list[object]:
    return []
