"""Elements rolled along both dimensions, integers."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.roll(x, shifts=(3, -2), dims=(0, 1))


def get_inputs():
    return [torch.randint(-9, 9, (40, 44), dtype=torch.int32)]


def get_init_inputs():
    return []
