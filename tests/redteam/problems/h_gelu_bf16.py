"""GELU with the error function, in bfloat16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(48, 100, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
