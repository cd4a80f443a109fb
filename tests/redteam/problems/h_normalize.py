"""Rows divided by their Euclidean length."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.normalize(x, dim=-1, eps=self.eps)


def get_inputs():
    return [torch.randn(48, 100)]


def get_init_inputs():
    return {"eps": 1e-8}
