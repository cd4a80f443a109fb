"""Shifts by one and returns a permuted view, which is not contiguous."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x + 1.0).permute(0, 2, 1)


def get_inputs():
    return [torch.randn(4, 30, 50)]


def get_init_inputs():
    return []
