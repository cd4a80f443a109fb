"""A product of two fp32 matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(70, 100), torch.randn(100, 90)]


def get_init_inputs():
    return []
