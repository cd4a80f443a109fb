"""Huber loss of box regression, summed."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """sum of squares within delta, of absolute values beyond."""

    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(prediction, target, reduction="sum", delta=0.7)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4000003, 4), torch.randn(4000003, 4)]


def get_init_inputs() -> list[object]:
    return []
