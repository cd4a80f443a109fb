import torch
from torch import nn


class Model(nn.Module):
    def forward(self, xs):
        out = xs[0]
        for x in xs[1:]:
            out = out + x
        return out


def get_inputs():
    return [[torch.randn(32, 100) for _ in range(3)]]


def get_init_inputs():
    return []
