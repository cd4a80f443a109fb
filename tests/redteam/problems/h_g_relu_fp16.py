"""ReLU of a half-precision tensor, four million elements."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(2048, 2048, dtype=torch.float16)]


def get_init_inputs():
    return []
