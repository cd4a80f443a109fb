import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Parameter(torch.ones(n))
        self.b = self.a

    def forward(self, x):
        return x * self.a + self.b


def get_inputs():
    return [torch.randn(32, 100)]


def get_init_inputs():
    return [100]
