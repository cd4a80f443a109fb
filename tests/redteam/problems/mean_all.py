"""The mean of all elements, a scalar tensor."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
