"""The last dimension backwards, bfloat16."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.flip(x, dims=(-1,))


def get_inputs():
    return [torch.randn(30, 70, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
