import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.hardshrink(x, 0.5)


def get_inputs():
    return [torch.randn(32, 100)]


def get_init_inputs():
    return []
