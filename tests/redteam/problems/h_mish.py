"""Mish: x times the hyperbolic tangent of softplus."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return []
