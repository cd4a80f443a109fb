"""One over x."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.reciprocal(x)


def get_inputs():
    return [torch.rand(64, 128) + 0.5]


def get_init_inputs():
    return []
