"""Max pooling with the last, partial window kept."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """max_pool2d, kernel 3, stride 2, ceil mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 3, stride=2, ceil_mode=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 64, 111, 111)]


def get_init_inputs() -> list[object]:
    return []
