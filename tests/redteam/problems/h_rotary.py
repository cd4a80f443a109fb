"""Rotary position embedding of halves of the last dimension."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, longest, features, base=10000.0):
        super().__init__()
        rate = base ** (-torch.arange(0, features, 2).float() / features)
        angle = torch.arange(longest).float()[:, None] * rate[None, :]
        self.register_buffer("cos", torch.cos(angle))
        self.register_buffer("sin", torch.sin(angle))

    def forward(self, x):
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def get_inputs():
    return [torch.randn(2, 3, 20, 32)]


def get_init_inputs():
    return [40, 32]
