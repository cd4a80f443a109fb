"""How many entries of each row of a sparse activation are set; the result is an integer."""

import torch
from torch import nn


class Model(nn.Module):
    """number of elements that are not 0, along dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.count_nonzero(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.relu(torch.randn(8192, 8000))]


def get_init_inputs() -> list[object]:
    return []
