import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(n, n, dtype=torch.bool)))

    def forward(self, x):
        return torch.softmax(x.masked_fill(~self.mask, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(4, 32, 32)]


def get_init_inputs():
    return [32]
