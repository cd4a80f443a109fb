"""Three scale-and-shift layers in a list, each with a leaky ReLU."""

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(1.0 + 0.1 * torch.randn(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return F.leaky_relu(x * self.scale + self.shift, 0.1)


class Model(nn.Module):
    def __init__(self, features, depth):
        super().__init__()
        self.layers = nn.ModuleList([Layer(features) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def get_inputs():
    return [torch.randn(30, 64)]


def get_init_inputs():
    return [64, 3]
