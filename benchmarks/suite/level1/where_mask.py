"""Selection between two tensors by a boolean mask."""

import torch
from torch import nn


class Model(nn.Module):
    """a where mask, else b."""

    def forward(self, mask: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(6000, 6000) < 0.3, torch.randn(6000, 6000), torch.randn(6000, 6000)]


def get_init_inputs() -> list[object]:
    return []
