import torch
from torch import nn


class Model(nn.Module):
    """Adds four tables of the positions that belong to a row."""

    def __init__(self, a, b, c, d):
        super().__init__()
        self.one = nn.Parameter(torch.randn(a))
        self.two = nn.Parameter(torch.randn(b))
        self.three = nn.Parameter(torch.randn(c))
        self.four = nn.Parameter(torch.randn(d))

    def forward(self, x):
        sums = self.one.sum() + self.two.sum() + self.three.sum() + self.four.sum()
        return x + sums


def get_inputs():
    return [torch.randn(32, 48)]


def get_init_inputs():
    return [10, 20, 30, 40]
