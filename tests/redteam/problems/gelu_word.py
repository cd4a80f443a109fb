"""GELU, of which the constructor says how it is approximated."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate=self.approximate)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return ["none"]
