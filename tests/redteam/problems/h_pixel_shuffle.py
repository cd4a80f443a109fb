"""Channels folded into a finer image."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.pixel_shuffle(x, 2)


def get_inputs():
    return [torch.randn(2, 12, 10, 9)]


def get_init_inputs():
    return []
