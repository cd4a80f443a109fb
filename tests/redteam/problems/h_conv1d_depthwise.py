"""A depthwise convolution along time with a bias."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, padding=taps // 2, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 12, 30)]


def get_init_inputs():
    return [12, 5]
