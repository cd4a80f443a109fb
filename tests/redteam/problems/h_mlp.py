"""Two linear layers with SiLU between them."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


def get_inputs():
    return [torch.randn(40, 48)]


def get_init_inputs():
    return [48, 96]
