"""Average pooling over a volume."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """avg_pool3d, kernel 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool3d(x, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 32, 32, 96, 96)]


def get_init_inputs() -> list[object]:
    return []
