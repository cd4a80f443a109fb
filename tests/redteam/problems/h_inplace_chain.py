"""A chain of in-place operations on a copy."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, slope=0.1, *, shift=0.5):
        super().__init__()
        self.slope = slope
        self.shift = shift

    def forward(self, x):
        y = x.clone()
        y.add_(self.shift)
        y.mul_(2.0)
        return torch.where(y > 0, y, y * self.slope)


def get_inputs():
    return [torch.randn(30, 130)]


def get_init_inputs():
    return {"slope": 0.2, "shift": 0.25}
