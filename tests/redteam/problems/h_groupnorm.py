"""GroupNorm of images with weight and bias per channel."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(2, 12, 5, 6)]


def get_init_inputs():
    return [4, 12]
