"""ELU followed by a clamp from above."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return torch.clamp(F.elu(x, self.alpha), max=6.0)


def get_inputs():
    return [torch.randn(50, 90)]


def get_init_inputs():
    return [1.3]
