"""In which bucket lies each number?"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-2.0, -1.0, 1.0, 2.0, 3.0]))

    def forward(self, x):
        return (x[..., None] > self.edges).sum(dim=-1)


def get_inputs():
    return [torch.randn(16, 24)]


def get_init_inputs():
    return []
