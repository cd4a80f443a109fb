"""All Euclidean distances between two sets of points."""

import torch
from torch import nn


class Model(nn.Module):
    """cdist."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cdist(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 2048, 64), torch.randn(4, 2500, 64)]


def get_init_inputs() -> list[object]:
    return []
