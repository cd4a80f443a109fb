"""64 fp32 products of 512 x 512 x 512."""

import torch
from torch import nn


class Model(nn.Module):
    """torch.bmm."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 512, 512), torch.randn(64, 512, 512)]


def get_init_inputs() -> list[object]:
    return []
