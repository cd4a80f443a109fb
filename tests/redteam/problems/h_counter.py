"""Counts its calls in a buffer and scales by the count."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


def get_inputs():
    return [torch.randn(20, 60)]


def get_init_inputs():
    return []
