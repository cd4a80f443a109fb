"""Smooth L1 of two tensors of 32768 x 32768."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Smooth L1 with beta 1."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(x, y)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(32768, 32768), torch.rand(32768, 32768)]


def get_init_inputs() -> list[object]:
    return []
