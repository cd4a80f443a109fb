"""Columns picked by index."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.index_select(x, 1, index)


def get_inputs():
    return [torch.randn(40, 60), torch.randint(0, 60, (25,))]


def get_init_inputs():
    return []
