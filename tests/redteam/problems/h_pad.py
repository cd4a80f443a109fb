"""Constant padding on the last two dimensions, unevenly."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.pad(x, (2, 1, 0, 3), value=-1.5)


def get_inputs():
    return [torch.randn(4, 20, 30)]


def get_init_inputs():
    return []
