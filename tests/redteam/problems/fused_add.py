import torch
from torch import nn


class Model(nn.Module):
    """Adds x to the residual stream in place, and gives the sum with x once more."""

    def forward(self, residual, x):
        residual.add_(x)
        return residual + x


def get_inputs():
    return [torch.randn(64, 96), torch.randn(64, 96)]


def get_init_inputs():
    return []
