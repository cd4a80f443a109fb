"""A convolution and the softmax of its channels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3)

    def forward(self, x):
        return torch.softmax(self.conv(x), dim=1)


def get_inputs():
    return [torch.randn(2, 3, 10, 12)]


def get_init_inputs():
    return [3, 12]
