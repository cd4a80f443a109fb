"""A product less another matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b, c):
        return torch.mm(a, b) - c


def get_inputs():
    return [torch.randn(24, 64), torch.randn(64, 48), torch.randn(24, 48)]


def get_init_inputs():
    return []
