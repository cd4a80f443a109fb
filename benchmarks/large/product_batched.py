"""512 products of 1024 x 512 and 512 x 1024, 2.1 GB out."""

import torch
from torch import nn


class Model(nn.Module):
    """torch.bmm."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 1024, 512), torch.randn(512, 512, 1024)]


def get_init_inputs() -> list[object]:
    return []
