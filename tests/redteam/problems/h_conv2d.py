"""A strided 3 x 3 convolution with padding."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 3, 10, 12)]


def get_init_inputs():
    return [3, 16]
