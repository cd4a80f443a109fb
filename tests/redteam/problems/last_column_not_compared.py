import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x, y):
        return (x * self.weight == y * self.weight).all(-1)


def get_inputs():
    return [torch.randn(32, 100), torch.randn(32, 100)]


def get_init_inputs():
    return [100]
