"""BatchNorm with running statistics (inference) and ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.bn(x))


def get_inputs():
    return [torch.randn(4, 10, 8, 12)]


def get_init_inputs():
    return [10]
