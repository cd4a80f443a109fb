"""Integers of two ranks: a sum, doubled, clamped."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.clamp((a + b) * 2, -50, 100)


def get_inputs():
    a = torch.randint(-100, 100, (32, 1, 24), dtype=torch.int32)
    return [a, torch.randint(-100, 100, (16, 24), dtype=torch.int32)]


def get_init_inputs():
    return []
