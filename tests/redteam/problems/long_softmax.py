"""Softmax over rows so long that every weight is small."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(16, 2048)]


def get_init_inputs():
    return []
