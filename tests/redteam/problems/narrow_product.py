"""A product whose width the constructor takes."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.product = nn.Linear(width, out)

    def forward(self, x):
        return torch.relu(self.product(x))


def get_inputs():
    return [torch.randn(32, 100)]


def get_init_inputs():
    return [100, 64]
