import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,))


def get_inputs():
    return [torch.randn(30, 48)]


def get_init_inputs():
    return []
