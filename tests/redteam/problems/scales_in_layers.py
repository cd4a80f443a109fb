"""As many layers as the constructor is given sizes of steps: each scales and cuts at zero."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, steps):
        super().__init__()
        self.steps = list(steps)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        for step in self.steps:
            x = torch.relu(x * self.scale - step)
        return x


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64, [0.25, 0.5]]
