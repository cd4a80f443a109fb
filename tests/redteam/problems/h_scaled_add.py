"""A sum scaled by a plain number that is an input too."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, alpha):
        return torch.add(x, y, alpha=alpha)


def get_inputs():
    return [torch.randn(30, 60), torch.randn(30, 60), 0.75]


def get_init_inputs():
    return []
