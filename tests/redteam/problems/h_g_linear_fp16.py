"""A linear layer with ReLU in half precision, 1024 x 1024 x 2048."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(1024, 1024, dtype=torch.float16)]


def get_init_inputs():
    return [1024, 2048]
