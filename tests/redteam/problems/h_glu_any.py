"""A linear layer, then half of it gated by the other half."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc = nn.Linear(features, 2 * features)

    def forward(self, x):
        return F.glu(self.fc(x), dim=-1)


def get_inputs():
    return [torch.randn(40, 48)]


def get_init_inputs():
    return [48]
