import torch
from torch import nn


class Model(nn.Module):
    """The order of tokens by their expert, equal ones in the order in which they come."""

    def forward(self, x):
        return torch.argsort(x.contiguous(), dim=-1, stable=True)


def get_inputs():
    return [torch.rand(32, 64).argsort(-1)]


def get_init_inputs():
    return []
