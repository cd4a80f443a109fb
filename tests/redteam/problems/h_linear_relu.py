"""Linear and ReLU in fp32."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer, bias=True):
        super().__init__()
        self.fc = nn.Linear(inner, outer, bias=bias)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return [96, 64]
