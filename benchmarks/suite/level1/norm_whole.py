"""The Euclidean norm of a whole gradient, for clipping."""

import torch
from torch import nn


class Model(nn.Module):
    """sqrt(sum(x^2)) over everything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(101, 500001)]


def get_init_inputs() -> list[object]:
    return []
