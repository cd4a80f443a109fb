"""The other sign."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return -x


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
