"""A linear layer, then a weight for each feature."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer)
        self.scale = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        return self.fc(x) * self.scale


def get_inputs():
    return [torch.randn(24, 64)]


def get_init_inputs():
    return [64, 48]
