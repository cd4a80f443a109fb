"""Logarithm of softmax over the second of three dimensions, in half precision."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)


def get_inputs():
    return [torch.randn(3, 40, 11, dtype=torch.float16)]


def get_init_inputs():
    return []
