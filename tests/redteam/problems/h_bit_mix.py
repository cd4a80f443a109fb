"""Shifts and exclusive ors of 64-bit integers."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        x = x ^ (x >> 7)
        x = x * 2654435761
        return (x ^ (x >> 13)) & 0xFFFFFF


def get_inputs():
    return [torch.randint(0, 1 << 40, (40, 64), dtype=torch.int64)]


def get_init_inputs():
    return []
