"""A linear layer and the row sums of what it gives."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer)

    def forward(self, x):
        return self.fc(x).sum(-1)


def get_inputs():
    return [torch.randn(24, 32)]


def get_init_inputs():
    return [32, 48]
