"""Average pooling, stride 2."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """avg_pool2d, kernel 3, stride 2, padding 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 3, stride=2, padding=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 192, 56, 56)]


def get_init_inputs() -> list[object]:
    return []
