"""A moving average along time."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """avg_pool1d, kernel 8, stride 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool1d(x, 8, stride=1, padding=4, count_include_pad=False)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 96, 8192)]


def get_init_inputs() -> list[object]:
    return []
