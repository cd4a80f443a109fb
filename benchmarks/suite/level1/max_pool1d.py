"""Max pooling along time with overlap."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """max_pool1d, kernel 5, stride 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, 5, stride=2, padding=2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 128, 4001)]


def get_init_inputs() -> list[object]:
    return []
