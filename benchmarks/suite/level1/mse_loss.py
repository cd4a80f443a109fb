"""Mean squared error of a large reconstruction."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean((prediction - target)^2)."""

    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(prediction, target)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 3, 512, 500), torch.randn(64, 3, 512, 500)]


def get_init_inputs() -> list[object]:
    return []
