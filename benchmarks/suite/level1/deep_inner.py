"""A small result with an inner dimension of 262144: the sum has to be split."""

import torch
from torch import nn


class Model(nn.Module):
    """a b with 128 x 262144 and 262144 x 128."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 262144), torch.randn(262144, 128)]


def get_init_inputs() -> list[object]:
    return []
