"""A matrix times a vector."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, x):
        return a @ x


def get_inputs():
    return [torch.randn(80, 150), torch.randn(150)]


def get_init_inputs():
    return []
