import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(24)
        self.w = nn.Parameter(torch.ones(24))

    def forward(self, x):
        y = x * self.w + self.last
        self.last = y.mean(0)
        return y


def get_inputs():
    return [torch.randn(10, 24)]


def get_init_inputs():
    return []
