import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(x)


def get_inputs():
    return [torch.randn(3, 40, 40)]


def get_init_inputs():
    return []
