"""Two outputs: mean and variance of every row."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=-1), x.var(dim=-1, correction=0)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
