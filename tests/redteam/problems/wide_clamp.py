"""Kept between -50 and 50, which normal values are anyway."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, -50.0, 50.0)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
