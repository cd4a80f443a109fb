"""One over each element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.reciprocal(x)


def get_inputs():
    return [torch.randn(40, 60)]


def get_init_inputs():
    return []
