"""Three tensors of different rank broadcast against each other."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, w, b):
        return (x * w + b).square()


def get_inputs():
    return [torch.randn(3, 12, 40), torch.randn(12, 1), torch.randn(40)]


def get_init_inputs():
    return []
